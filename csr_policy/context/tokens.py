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
"""Text to token ids, with a wall between the world's text and control tokens.

Two encoders over one vocabulary: `encode_frame` reads control tokens such as
`<|im_start|>` and is for the chat frame alone; `encode_text` knows no added
token at all, so that whatever a topic carries is just characters. Loading
needs neither torch nor the network.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as BackendTokenizer
from transformers import PreTrainedTokenizerFast

from csr_policy.context.errors import ContextError

TokenIds = array
"""Token ids, `array('I')`."""


def token_ids(values: Iterable[int] = ()) -> TokenIds[int]:
    """Make an array of token ids."""
    return array("I", values)


class Tokenizer:
    """The served model's tokenizer.

    Safe to call from any thread: the backend holds no state between calls.
    """

    def __init__(self, folder: Path) -> None:
        """Load tokenizer.json and the chat template from a model folder.

        Raises:
            ContextError: The folder has no usable tokenizer; one line.
        """
        if not (folder / "tokenizer.json").is_file():
            raise ContextError(f"tokenizer: {str(folder)!r} has no tokenizer.json")
        try:
            self._fast = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        except Exception as error:
            detail = " ".join(str(error).split())
            raise ContextError(f"tokenizer: cannot load {str(folder)!r} ({detail})") from error
        self._frame: BackendTokenizer = self._fast.backend_tokenizer
        serialised = self._frame.to_str()
        document = json.loads(serialised)
        self.fingerprint = hashlib.sha256(serialised.encode()).hexdigest()
        """Identity of the vocabulary and its rules."""
        self.added_ids = frozenset(entry["id"] for entry in document.get("added_tokens", ()))
        """Ids that text from the world can never become."""
        self._plain = BackendTokenizer.from_str(json.dumps(_without_added_tokens(document)))

    def encode_text(self, text: str) -> TokenIds[int]:
        """Encode text of the world: no BOS, and no added token whatever it says."""
        ids: list[int] = self._plain.encode(_valid(text), add_special_tokens=False).ids
        if self.added_ids.isdisjoint(ids):
            return token_ids(ids)
        return self._encode_by_character(text)

    def encode_frame(self, text: str) -> TokenIds[int]:
        """Encode a piece of the chat frame: control tokens are read, no BOS is added."""
        return token_ids(self._frame.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids, control tokens left out."""
        return str(self._frame.decode(list(ids), skip_special_tokens=True))

    def piece(self, token_id: int) -> str:
        """Text of one token, for messages."""
        return str(self._frame.decode([token_id], skip_special_tokens=False))

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        """Apply the model's own chat template, reply opened, thinking off where it knows it.

        Raises:
            ContextError: The model has no chat template, or it refuses the messages.
        """
        if not self._fast.chat_template:
            raise ContextError("tokenizer: the model folder has no chat template")
        try:
            return str(
                self._fast.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
                )
            )
        except Exception as error:
            detail = " ".join(str(error).split())
            raise ContextError(f"tokenizer: chat template refuses ({detail})") from error

    def _encode_by_character(self, text: str) -> TokenIds[int]:
        """Last resort for a vocabulary whose plain merges spell an added token."""
        ids = token_ids()
        for character in _valid(text):
            encoded = self._plain.encode(character, add_special_tokens=False).ids
            if self.added_ids.isdisjoint(encoded):
                ids.extend(encoded)
            else:
                ids.extend(self._plain.encode("?", add_special_tokens=False).ids)
        return ids


def _without_added_tokens(document: dict[str, Any]) -> dict[str, Any]:
    plain = dict(document)
    plain["added_tokens"] = []
    # A post-processor names added tokens (BOS) and does not load without them.
    plain["post_processor"] = None
    return plain


def _valid(text: str) -> str:
    """Replace lone surrogates, which no encoder takes."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
