# Copyright 2026 The csr_policy Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Counting the tokens of conversations that come as text."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.readers import TokenCounter


def counter(tokenizer: Path | None, characters_per_token: float | None) -> TokenCounter | None:
    """Build a counter of the tokens of one message, its chat frame included.

    Args:
        tokenizer: Folder of the served model's tokenizer; exact.
        characters_per_token: A rough count where there is no tokenizer.

    Returns:
        The counter, or None where neither is given.

    Raises:
        CapacityError: The folder holds no tokenizer, or the number is not positive.
    """
    if tokenizer is not None:
        return _exact(tokenizer)
    if characters_per_token is None:
        return None
    if not characters_per_token > 0:
        raise CapacityError(
            f"characters_per_token: is {characters_per_token:g}; expected a positive number"
        )
    each = characters_per_token
    return lambda text: max(1, math.ceil(len(text) / each))


def _exact(folder: Path) -> TokenCounter:
    fast = importlib.import_module("transformers").PreTrainedTokenizerFast
    try:
        tokenizer: Any = fast.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise CapacityError(f"tokenizer: cannot load {str(folder)!r} ({reason})") from None
    frame = _frame_tokens(tokenizer)

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False)) + frame

    return count


def _frame_tokens(tokenizer: Any) -> int:
    """Tokens that the chat template puts around one more message."""
    if not getattr(tokenizer, "chat_template", None):
        return 0

    def length(messages: int) -> int:
        roles = ("user", "assistant")
        chat = [{"role": roles[i % 2], "content": "x"} for i in range(messages)]
        text = tokenizer.apply_chat_template(chat, tokenize=False)
        return len(tokenizer.encode(text, add_special_tokens=False))

    inside = len(tokenizer.encode("x", add_special_tokens=False))
    return max(0, (length(4) - length(2)) // 2 - inside)
