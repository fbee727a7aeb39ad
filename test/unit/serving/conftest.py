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
"""A scripted vLLM in the place of the real one: the same processes, and faults on request."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from csr_policy.serving.command import ServerOptions
from csr_policy.serving.pair import free_ports
from csr_policy.serving.server import VllmServer

SCRIPTED = Path(__file__).parent / "scripted_vllm"
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_size": 64,
        "max_position_embeddings": 4096,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts the scripted vLLM in the place of the real one, in the mode that is asked for."""
    monkeypatch.delenv("CSR_POLICY_VLLM_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SCRIPTED), str(REPOSITORY)]))
    return lambda mode: monkeypatch.setenv("SCRIPTED_VLLM", mode)


@pytest.fixture
def server(model: Path, tmp_path: Path, scripted: Callable[[str], None]) -> Iterator[VllmServer]:
    scripted("")
    options = ServerOptions(model=str(model), port=free_ports(1)[0], api_key="k", name="engine_0")
    made = VllmServer(options, tmp_path / "server.log")
    yield made
    made.stop(timeout_s=1.0)
