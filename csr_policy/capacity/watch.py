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
"""Is a live engine behaving as predicted?

vLLM counts queried and cached prompt tokens. Their ratio over a window is compared
with the prediction; an alarm is raised when the deviation of several windows together
is beyond the tolerance and its own noise. Where the engine samples how long blocks
lay idle before eviction (`--kv-cache-metrics`), that is compared with T_C.
"""

from __future__ import annotations

import http.client
import math
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

from csr_policy.capacity.errors import CapacityError

QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
REQUESTS = "vllm:request_success_total"
IDLE_SUM = "vllm:kv_block_idle_before_evict_seconds_sum"
IDLE_COUNT = "vllm:kv_block_idle_before_evict_seconds_count"
_CONFIG = "vllm:cache_config_info"
_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading of an engine.

    Attributes:
        queries: Prompt tokens asked for.
        hits: Of these, cached.
        requests: Finished requests.
        idle_sum_s: Sum of sampled idle times before eviction; nan where not sampled.
        idle_count: How many.
    """

    queries: float
    hits: float
    requests: float
    idle_sum_s: float
    idle_count: float


@dataclass(frozen=True, slots=True)
class EngineCache:
    """Size of an engine's cache, as it says itself.

    Attributes:
        blocks: N, without vLLM's null block.
        block_tokens: Tokens a block.
    """

    blocks: int
    block_tokens: int


def fetch_metrics(url: str, api_key: str | None = None, timeout_s: float = 5.0) -> str:
    """Read /metrics.

    Raises:
        OSError: The engine does not answer.
        CapacityError: It answers something else.
    """
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise CapacityError(f"engine: is {url!r}; expected http://host:port")
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.netloc, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/metrics", headers=headers)
        response = connection.getresponse()
        body = response.read().decode("utf-8", errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise CapacityError(f"engine: {url} answers /metrics with status {response.status}")
    return body


def _samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    samples = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match:
            labels = dict(_LABEL.findall(match["labels"] or ""))
            samples.append((match["name"], labels, float(match["value"])))
    return samples


def parse_counters(text: str) -> Counters:
    """Sum the counters over the engine's ranks.

    Raises:
        CapacityError: The prefix cache counters are missing.
    """
    totals: dict[str, float] = {}
    for name, _, value in _samples(text):
        totals[name] = totals.get(name, 0.0) + value
    if QUERIES not in totals or HITS not in totals:
        raise CapacityError(f"engine: has no {QUERIES}; expected vLLM with prefix caching")
    return Counters(
        queries=totals[QUERIES],
        hits=totals[HITS],
        requests=totals.get(REQUESTS, 0.0),
        idle_sum_s=totals.get(IDLE_SUM, math.nan),
        idle_count=totals.get(IDLE_COUNT, math.nan),
    )


def parse_cache(text: str) -> EngineCache | None:
    """Size of the cache, None where the engine does not tell."""
    for name, labels, _ in _samples(text):
        if name == _CONFIG and labels.get("num_gpu_blocks", "").isdigit():
            return EngineCache(int(labels["num_gpu_blocks"]) - 1, int(labels["block_size"]))
    return None


@dataclass(frozen=True, slots=True)
class Window:
    """One interval between two readings.

    Attributes:
        seconds: Its length.
        queries: Tokens asked for.
        hit_ratio: Cached of these; nan where nothing was asked.
        request_rate_hz: Finished requests a second.
        idle_s: Mean idle time of evicted blocks; nan where not sampled.
        restarted: Whether counters went backwards: the engine started anew.
    """

    seconds: float
    queries: float
    hit_ratio: float
    request_rate_hz: float
    idle_s: float
    restarted: bool


def window(before: Counters, after: Counters, seconds: float) -> Window:
    """Difference of two readings."""
    queries, hits = after.queries - before.queries, after.hits - before.hits
    if queries < 0 or hits < 0:
        return Window(seconds, 0.0, math.nan, math.nan, math.nan, True)
    count = after.idle_count - before.idle_count
    idle = (after.idle_sum_s - before.idle_sum_s) / count if count > 0 else math.nan
    rate = (after.requests - before.requests) / seconds
    return Window(seconds, queries, hits / queries if queries else math.nan, rate, idle, False)


@dataclass(frozen=True, slots=True)
class DriftState:
    """Where the live engine stands.

    Attributes:
        windows: Windows that count.
        observed: Hit ratio over them, by tokens.
        predicted: Mean prediction.
        deviation: observed - predicted.
        standard_error: Of the deviation, from the spread between windows.
        alarm: Whether it is beyond tolerance and two standard errors.
    """

    windows: int
    observed: float
    predicted: float
    deviation: float
    standard_error: float
    alarm: bool


class DriftDetector:
    """Judges the last windows together. Not thread-safe."""

    def __init__(self, tolerance: float, *, windows: int = 6, least: int = 3) -> None:
        """Set what counts as drift.

        Args:
            tolerance: Deviation of the hit ratio that is acceptable.
            windows: Newest windows that are judged.
            least: Windows before the first judgement.

        Raises:
            CapacityError: A number is out of range.
        """
        if not 0 < tolerance < 1 or not 2 <= least <= windows:
            raise CapacityError(
                f"drift: tolerance {tolerance:g}, windows {least} to {windows}; expected a "
                "tolerance between 0 and 1 and at least 2 windows"
            )
        self._tolerance, self._least = tolerance, least
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=windows)

    def add(self, seen: Window, predicted: float) -> DriftState:
        """Take a window; one without queries or with a restart does not count."""
        if seen.restarted:
            # A restarted engine is cold: what came before says nothing about it.
            self._recent.clear()
        elif seen.queries > 0 and math.isfinite(predicted):
            self._recent.append((seen.queries, seen.hit_ratio, predicted))
        return self.state()

    def state(self) -> DriftState:
        """Judge."""
        if not self._recent:
            return DriftState(0, math.nan, math.nan, math.nan, math.inf, False)
        queries, ratios, predictions = np.array(self._recent).T
        share = queries / queries.sum()
        observed, predicted = float(share @ ratios), float(share @ predictions)
        deviation = observed - predicted
        count = len(self._recent)
        residual = share * (ratios - predictions - deviation)
        error = math.inf
        if count > 1:
            error = float(np.sqrt(np.sum(residual**2) * count / (count - 1)))
        alarm = count >= self._least and abs(deviation) > self._tolerance + 2 * error
        return DriftState(count, observed, predicted, deviation, error, alarm)


@dataclass(frozen=True, slots=True)
class WatchReport:
    """A bounded watch.

    Attributes:
        windows: All windows, in order.
        predictions: Of each window.
        states: Judgement after each.
        characteristic_time_s: Predicted T_C; nan where unknown.
        unreachable: Readings that failed.
    """

    windows: tuple[Window, ...]
    predictions: tuple[float, ...]
    states: tuple[DriftState, ...]
    characteristic_time_s: float
    unreachable: int

    @property
    def alarm(self) -> bool:
        """Whether any judgement was an alarm."""
        return any(state.alarm for state in self.states)


def watch(
    read: Callable[[], Counters],
    predict: Callable[[Window], float],
    *,
    duration_s: float,
    interval_s: float,
    detector: DriftDetector,
    characteristic_time_s: float = math.nan,
    on_window: Callable[[Window, DriftState], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> WatchReport:
    """Read an engine's counters for a bounded time.

    Args:
        read: Gives the counters; an OSError is an engine out of reach for a moment.
        predict: Predicted token hit ratio of a window, which may depend on its load.
        duration_s: How long.
        interval_s: Length of a window.
        detector: Judges.
        characteristic_time_s: Predicted T_C for the report.
        on_window: Told of each window.
        clock: Steady clock.
        sleep: Waits.

    Raises:
        CapacityError: The times are out of range or the engine was never reached.
    """
    if not 0 < interval_s <= duration_s:
        raise CapacityError(
            f"interval_s: is {interval_s:g}; expected above 0, at most duration_s {duration_s:g}"
        )
    notes = _Notes(predict, detector, on_window)
    end = clock() + duration_s
    due = clock()
    while True:
        try:
            notes.add(clock(), read())
        except OSError as error:
            notes.unreachable, notes.reason = notes.unreachable + 1, str(error)
        due += interval_s
        if due > end + 1e-9:
            break
        sleep(max(0.0, due - clock()))
    if notes.last is None:
        raise CapacityError(f"engine: was never reached in {duration_s:g} s ({notes.reason})")
    return WatchReport(
        tuple(notes.windows),
        tuple(notes.predictions),
        tuple(notes.states),
        characteristic_time_s,
        notes.unreachable,
    )


@dataclass(slots=True)
class _Notes:
    """What a watch has seen so far."""

    predict: Callable[[Window], float]
    detector: DriftDetector
    on_window: Callable[[Window, DriftState], None] | None
    windows: list[Window] = field(default_factory=list)
    predictions: list[float] = field(default_factory=list)
    states: list[DriftState] = field(default_factory=list)
    last: tuple[float, Counters] | None = None
    unreachable: int = 0
    reason: str = ""

    def add(self, now: float, counters: Counters) -> None:
        """Take a reading; with the one before it is a window."""
        before, self.last = self.last, (now, counters)
        if before is None or now <= before[0]:
            return
        seen = window(before[1], counters, now - before[0])
        predicted = self.predict(seen)
        self.windows.append(seen)
        self.predictions.append(predicted)
        self.states.append(self.detector.add(seen, predicted))
        if self.on_window is not None:
            self.on_window(seen, self.states[-1])


def report_markdown(report: WatchReport, engine: str) -> str:
    """The report as a page."""
    state = report.states[-1] if report.states else None
    verdict = "no window" if state is None else "ALARM: drift" if report.alarm else "as predicted"
    lines = [f"# Cache watch of {engine}", "", f"Verdict: **{verdict}**", ""]
    if state is not None and state.windows:
        lines += [
            f"Last {state.windows} windows: observed {state.observed:.4f}, predicted "
            f"{state.predicted:.4f}, deviation {state.deviation:+.4f} "
            f"(standard error {state.standard_error:.4f}).",
            "",
        ]
    idle = [seen.idle_s for seen in report.windows if math.isfinite(seen.idle_s)]
    if idle and math.isfinite(report.characteristic_time_s):
        lines += [
            f"Evicted blocks had been idle for {float(np.mean(idle)):.1f} s on average; "
            f"predicted T_C {report.characteristic_time_s:.1f} s.",
            "",
        ]
    if report.unreachable:
        lines += [f"Readings that failed: {report.unreachable}.", ""]
    lines += [
        "| window | s | requests/s | tokens | observed | predicted | idle s | judgement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = zip(report.windows, report.predictions, report.states, strict=True)
    for number, (seen, predicted, judged) in enumerate(rows, start=1):
        note = "restarted" if seen.restarted else "alarm" if judged.alarm else ""
        idle_s = f"{seen.idle_s:.1f}" if math.isfinite(seen.idle_s) else "-"
        lines.append(
            f"| {number} | {seen.seconds:.1f} | {seen.request_rate_hz:.2f} | {seen.queries:.0f} "
            f"| {seen.hit_ratio:.4f} | {predicted:.4f} | {idle_s} | {note} |"
        )
    return "\n".join(lines) + "\n"
