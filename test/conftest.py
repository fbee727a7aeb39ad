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
"""What all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from csr_policy.context.tokens import Tokenizer
from csr_policy.serving.models import tiny_model

sys.path.insert(0, str(Path(__file__).parent / "support"))

pytest_plugins = ["engine_fixtures"]


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
    """The tiny model's folder: real tokenizer and chat template, random weights."""
    return tiny_model()


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer(tiny_folder)
