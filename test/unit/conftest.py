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
"""Scripted engines for error paths."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine, serving

from csr_policy.context.tokens import Tokenizer


@pytest.fixture
def make_engine(tiny_folder: Path) -> Iterator[Callable[..., ScriptedEngine]]:
    """Start as many scripted engines as a test asks for."""
    with ExitStack() as stack:

        def make(port: int = 0, **options: int) -> ScriptedEngine:
            engine = ScriptedEngine(str(tiny_folder / "tokenizer.json"), **options)
            return stack.enter_context(serving(engine, port))

        yield make


@pytest.fixture
def pair(make_engine: Callable[..., ScriptedEngine]) -> tuple[ScriptedEngine, ScriptedEngine]:
    return make_engine(), make_engine()


@pytest.fixture(scope="session", autouse=True)
def load_each_tokenizer_once() -> Iterator[None]:
    """Loading takes a second; a tokenizer holds no state between calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csr_policy.context.assembler.Tokenizer", functools.cache(Tokenizer))
        yield
