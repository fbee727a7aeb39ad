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
"""Which engines a command of the command line asks: named ones, the embedded pair, or own ones."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from csr_policy.serving import embedded
from csr_policy.serving.command import ServerError
from csr_policy.serving.pair import START_TIMEOUT_S, EnginePair
from csr_policy.serving.server import Progress

KEY_VARIABLE = "CSR_POLICY_API_KEY"


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """Engines and what a policy needs to ask them.

    Attributes:
        urls: Base URLs, primary first.
        model_folder: Folder with the served model's tokenizer.
    """

    urls: tuple[str, ...]
    model_folder: Path


@contextmanager
def engine_access(
    urls: Sequence[str],
    tokenizer: Path | None,
    own_model: Path,
    progress: Progress | None = None,
    *,
    max_model_len: int = 0,
    kv_tokens: int = 0,
) -> Iterator[EngineAccess]:
    """Give access to engines while the block runs.

    Args:
        urls: Engines the user named; empty starts an own pair and stops it at the end.
        tokenizer: Model folder of the named engines.
        own_model: Model that an own pair serves.
        progress: Told in one line what is being done.
        max_model_len: For an own pair: longest prompt plus reply; 0 takes the model's.
        kv_tokens: For an own pair: tokens of each KV pool; 0 takes twice `max_model_len`.

    Raises:
        ServerError: Engines are named without a tokenizer, or the own pair does not come up.
    """
    if urls:
        running = embedded.status()
        if running is not None and tuple(urls) == running.urls:
            _set_key(running.api_key_file.read_text(encoding="utf-8").strip())
            tokenizer = tokenizer or running.model_folder
        if tokenizer is None:
            raise ServerError("--tokenizer: is missing; expected the served model's folder")
        yield EngineAccess(tuple(urls), tokenizer)
        return
    pair = EnginePair(own_model, max_model_len=max_model_len, kv_tokens=kv_tokens)
    try:
        pair.start(START_TIMEOUT_S, progress)
        _set_key(pair.api_key)
        yield EngineAccess(pair.urls, own_model)
    finally:
        pair.stop()


def _set_key(key: str) -> None:
    """Hand the key on the way a user would: by the environment, never as an argument."""
    os.environ[KEY_VARIABLE] = key
