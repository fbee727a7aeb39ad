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
"""A background thread whose death is a reported state, not a silence."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from csr_policy.reconciliation.state import SharedState

LOG = logging.getLogger(__name__)


def start_thread(name: str, body: Callable[[], None], state: SharedState) -> threading.Thread:
    """Start a daemon thread; if its body fails, the state says so and the log has why."""

    def guarded() -> None:
        try:
            body()
        except Exception as error:
            LOG.exception("thread %s died", name)
            with state.lock:
                state.dead_thread = f"{name}: {type(error).__name__}: {error}"
                state.last_error = f"thread {state.dead_thread}"

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread
