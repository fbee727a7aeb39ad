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
"""What the capacity tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from csr_policy.capacity.readers import read_trace
from csr_policy.capacity.trace import Trace, trace_from_turns

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"


def shared_trace(name: str) -> Trace:
    """Real conversations; skips where they are not at hand."""
    path = TRACES / name / "convs.jsonl"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    return read_trace(path)


@pytest.fixture(scope="session")
def sharegpt() -> Trace:
    return shared_trace("sharegpt92k")


@pytest.fixture(scope="session")
def hh_rlhf() -> Trace:
    return shared_trace("hh_rlhf")


@pytest.fixture(scope="session")
def small_trace() -> Trace:
    """Conversations made up, of one to six turns."""
    rng = np.random.default_rng(5)
    return trace_from_turns(
        [
            [(int(rng.integers(5, 400)), int(rng.integers(1, 300))) for _ in range(turns)]
            for turns in rng.integers(1, 7, 200)
        ],
        source="made up",
    )
