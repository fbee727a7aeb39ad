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
"""Policies on scripted or real engines, for tests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from csr_policy.parameters import settings_from_parameters
from csr_policy.policy import Policy
from csr_policy.settings import Settings

ACTIONS = ("forward", "turn left", "turn right")
NOT_REACHED = "not reached yet"
"""An engine's error before the first attempt at it."""
PATIENCE_S = 60.0
"""How long a condition may take; nothing is measured with it."""


def policy_settings(urls: Sequence[str], folder: Path, **changes: Any) -> Settings:
    """Small thresholds; dots in a name are written as two underscores."""
    values: dict[str, object] = {
        "engines": list(urls),
        "tokenizer": str(folder),
        "actions": list(ACTIONS),
        "engine.cache_salt": uuid.uuid4().hex,
        "engine.probe_period_s": 0.1,
        "reconciliation.tau_mem_tokens": 600,
        "reconciliation.n_catchup_tokens": 64,
        "reconciliation.backoff_initial_s": 0.05,
        "eviction.head_max_tokens": 64,
        "ingest.max_chunk_tokens": 64,
        "decision.rate_hz": 0.2,
    }
    values.update({name.replace("__", "."): value for name, value in changes.items()})
    return settings_from_parameters(values)


def started(settings: Settings, **options: Any) -> Policy:
    """A policy whose primary is ready."""
    policy = Policy(settings, **options)
    policy.start()
    assert policy.wait_ready(PATIENCE_S), policy.status()
    return policy


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait for a condition, and say which one did not come."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"timed out: {what}"
        time.sleep(0.005)


def fill(policy: Policy, chunks: int, start: int = 0) -> None:
    """Append numbered chunks of about 20 tokens."""
    for number in range(start, start + chunks):
        policy.append(f"n{number} a door and a key, and a ball ahead", "view", stamp_ns=number)
