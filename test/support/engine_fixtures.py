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
"""Real vLLM servers for the tests: one pair that all of them share, and more on request.

Starting a pair takes half a minute, so the shared one is started when the first test asks for it
and serves until the last. It must be left as it was found: a test that stops a server, or counts
on an empty cache, takes a pair of its own or a `cache_salt` of its own.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from csr_policy.serving.models import TINY_MAX_TOKENS, ModelError, tiny_model
from csr_policy.serving.pair import EnginePair

START_TIMEOUT_S = 400.0
# Room for the prompts of several tests, so that one does not push out what another measures.
SHARED_KV_TOKENS = 4 * TINY_MAX_TOKENS

MakePair = Callable[..., EnginePair]


def show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@pytest.fixture(scope="session")
def tiny_model_folder() -> Path:
    """The random model with 131,072 positions; skips where vLLM is not installed."""
    if not os.environ.get("CSR_POLICY_VLLM_PYTHON") and importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here")
    try:
        return tiny_model(progress=show)
    except ModelError as error:
        pytest.skip(f"there is no tiny model: {error}")


@pytest.fixture(scope="session")
def shared_engine_pair(tiny_model_folder: Path) -> Iterator[EnginePair]:
    pair = EnginePair(tiny_model_folder, kv_tokens=SHARED_KV_TOKENS)
    pair.start(START_TIMEOUT_S, show)
    yield pair
    pair.stop()


@pytest.fixture
def engine_pair(shared_engine_pair: EnginePair) -> EnginePair:
    """Two real, primed servers with the tiny model; shared, so leave them as they were."""
    shared_engine_pair.check()
    return shared_engine_pair


@pytest.fixture
def make_engine_pair(tiny_model_folder: Path) -> Iterator[MakePair]:
    """Makes and starts a pair of one's own; takes the keyword arguments of `EnginePair`."""
    made: list[EnginePair] = []

    def make(model_folder: Path = tiny_model_folder, **arguments: object) -> EnginePair:
        made.append(EnginePair(model_folder, **arguments))  # type: ignore[arg-type]
        made[-1].start(START_TIMEOUT_S, show)
        return made[-1]

    yield make
    for pair in made:
        pair.stop()


@pytest.fixture
def other_tokenizer(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """The tiny model's tokenizer with two words changed places: another model's."""
    for path in tiny_model_folder.glob("*token*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in tiny_model_folder.glob("chat_template*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    file = tmp_path / "tokenizer.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = document["model"]["vocab"]
    vocabulary["Ġx"], vocabulary["Ġm"] = vocabulary["Ġm"], vocabulary["Ġx"]
    file.write_text(json.dumps(document), encoding="utf-8")
    return tmp_path
