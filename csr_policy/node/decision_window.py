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
"""What the newest decisions say in numbers: outcomes, latency, cached share."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from csr_policy.decision import Decision, Outcome

WINDOW_DECISIONS = 200
"""Decisions behind the quantiles: enough for a 99th percentile, recent enough to show a change."""


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """A summary of the decisions so far.

    Attributes:
        started: Ticks that were started.
        skipped: Ticks that came due while another one ran.
        outcomes: Decisions by outcome, all of them.
        last_id: Newest decision; -1 for none.
        ttft_median_s: Over the window; NaN where no reply is in it.
        ttft_p99_s: Over the window; NaN where no reply is in it.
        cached_share: Median over the window; NaN where no reply is in it.
        replies: Decisions with a reply in the window.
    """

    started: int
    skipped: int
    outcomes: Mapping[Outcome, int]
    last_id: int
    ttft_median_s: float
    ttft_p99_s: float
    cached_share: float
    replies: int


class DecisionWindow:
    """Counts every decision and remembers the newest replies; any thread may call anything."""

    def __init__(self, size: int = WINDOW_DECISIONS) -> None:
        """Start with nothing counted."""
        self._outcomes = dict.fromkeys(Outcome, 0)
        self._ttft_s: deque[float] = deque(maxlen=size)
        self._cached: deque[float] = deque(maxlen=size)
        self._started = 0
        self._skipped = 0
        self._last_id = -1
        self._lock = threading.Lock()

    def tick_started(self) -> None:
        """Count a tick that starts."""
        with self._lock:
            self._started += 1

    def ticks_skipped(self, count: int) -> None:
        """Count ticks that did not start."""
        with self._lock:
            self._skipped += count

    def add(self, decision: Decision) -> None:
        """Take in the decision of a tick."""
        with self._lock:
            self._outcomes[decision.outcome] += 1
            self._last_id = decision.id
            if not math.isnan(decision.ttft_s) and decision.prompt_tokens:
                self._ttft_s.append(decision.ttft_s)
                self._cached.append(decision.cached_tokens / decision.prompt_tokens)

    def summary(self) -> WindowSummary:
        """Summarise what was counted so far."""
        with self._lock:
            ttft_s, cached = sorted(self._ttft_s), sorted(self._cached)
            return WindowSummary(
                started=self._started,
                skipped=self._skipped,
                outcomes=dict(self._outcomes),
                last_id=self._last_id,
                ttft_median_s=quantile(ttft_s, 0.5),
                ttft_p99_s=quantile(ttft_s, 0.99),
                cached_share=quantile(cached, 0.5),
                replies=len(ttft_s),
            )


def quantile(ascending: Sequence[float], share: float) -> float:
    """Smallest value that at least `share` of the values do not exceed; NaN for none."""
    if not ascending:
        return math.nan
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
