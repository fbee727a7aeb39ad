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
"""Conversations against a real vLLM server, open loop, with their cached tokens recorded.

The main thread holds the clock and a heap of what is due; worker threads, each with
its own connection, hold the requests. A conversation's next prompt is due at
max{E2E, sampled gap} after the one before was due (equation (80)).

Disaggregated, a request asks for one token and the recorded reply is part of the next
prompt, so the server does what the paper's prefiller does. Colocated, the server writes
the reply, of the recorded length, and the next prompt continues it.
"""

from __future__ import annotations

import heapq
import http.client
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from csr_policy.capacity.arrays import FloatArray, IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import Boundary

Progress = Callable[[int, int], None]
_PATH = "/inference/v1/generate"
_TOKEN_IDS = (1000, 40_000)
"""Range of the random token ids; above the special ones, below any vocabulary in use."""
_LATE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask.

    Attributes:
        url: Base URL.
        api_key: Key, or None.
        workers: Requests at once.
        timeout_s: Longest time for one.
    """

    url: str
    api_key: str | None = None
    workers: int = 16
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to send when.

    Attributes:
        rows: Conversation of the trace that each instance replays.
        arrivals_s: When each instance begins.
        gaps_s: Sampled gap after each turn, flat in order of the instances.
        warm_up: Instances before the window.
    """

    rows: IntArray
    arrivals_s: FloatArray
    gaps_s: FloatArray
    warm_up: int


@dataclass(frozen=True, slots=True)
class Served:
    """What was measured, one element a request in order of submission.

    Attributes:
        instance: Conversation instance.
        turn: Its turn, 0 for the first.
        sent_s: When it was handed to the server, from the start.
        done_s: When its reply was in hand.
        prompt_tokens: Length of its prompt.
        cached_tokens: Of these, found cached.
        window_s: Measurement window.
        late_share: Requests sent later than due by more than a fifth of the mean gap.
        failed: Requests that came to nothing; their conversations ended there.
    """

    instance: IntArray
    turn: IntArray
    sent_s: FloatArray
    done_s: FloatArray
    prompt_tokens: IntArray
    cached_tokens: IntArray
    window_s: tuple[float, float]
    late_share: float
    failed: int

    @property
    def gaps_s(self) -> FloatArray:
        """Realised times between two prompts of a conversation, censored ones left out."""
        order = np.lexsort((self.turn, self.instance))
        same = np.diff(self.instance[order]) == 0
        return np.asarray(np.diff(self.sent_s[order])[same])

    @property
    def latencies_s(self) -> FloatArray:
        """End-to-end times."""
        return self.done_s - self.sent_s


@dataclass(slots=True)
class _Job:
    instance: int
    turn: int
    due_s: float
    prompt: list[int]
    reply_tokens: int
    sent_s: float = 0.0
    done_s: float = 0.0
    cached: int = 0
    reply: tuple[int, ...] = ()
    error: str = ""


class _Worker(threading.Thread):
    """Owns one connection; takes jobs, gives them back done."""

    def __init__(
        self,
        server: Server,
        jobs: queue.SimpleQueue[_Job | None],
        done: queue.SimpleQueue[_Job],
        begin_s: float,
    ) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._jobs, self._done = jobs, done
        self._begin_s = begin_s
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Serve until None comes."""
        while (job := self._jobs.get()) is not None:
            job.sent_s = time.monotonic() - self._begin_s
            try:
                self._ask(job)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                job.error = f"{type(error).__name__}: {error}"
                self._connection = None
            job.done_s = time.monotonic() - self._begin_s
            self._done.put(job)

    def _ask(self, job: _Job) -> None:
        sampling = {
            "max_tokens": max(job.reply_tokens, 1),
            "temperature": 0,
            "ignore_eos": True,
            "detokenize": False,
        }
        body = json.dumps({"token_ids": job.prompt, "sampling_params": sampling})
        reply = self._exchange(body)
        details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
        job.cached = int(details.get("cached_tokens") or 0)
        job.reply = tuple(reply["choices"][0]["token_ids"])

    def _exchange(self, body: str) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._server.api_key:
            headers["Authorization"] = f"Bearer {self._server.api_key}"
        for attempt in (0, 1):
            if self._connection is None:
                netloc = urlsplit(self._server.url).netloc
                self._connection = http.client.HTTPConnection(
                    netloc, timeout=self._server.timeout_s
                )
            try:
                self._connection.request("POST", _PATH, body, headers)
                response = self._connection.getresponse()
                data = response.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                # vLLM closes idle connections; a request is sent again once.
                self._connection.close()
                self._connection = None
                if attempt:
                    raise
                continue
            if response.status != 200:
                raise ValueError(
                    f"status {response.status}: {data[:200].decode('utf-8', 'replace')}"
                )
            parsed: dict[str, Any] = json.loads(data)
            return parsed
        raise ConnectionError("unreachable")


class _Replay:
    """The main thread's side: the clock, the heap, the texts of the conversations."""

    def __init__(self, trace: Trace, schedule: Schedule, boundary: Boundary, seed: int) -> None:
        self._trace, self._schedule, self._boundary, self._seed = trace, schedule, boundary, seed
        counts = trace.turn_counts[schedule.rows]
        self._begins = np.concatenate(([0], np.cumsum(counts)))
        self.turns = int(self._begins[-1])
        self._texts: dict[int, list[int]] = {}
        self.due: list[tuple[float, int, int]] = [
            (float(at), number, 0) for number, at in enumerate(schedule.arrivals_s)
        ]
        heapq.heapify(self.due)

    def job(self, due_s: float, instance: int, turn: int) -> _Job:
        """Build the prompt of a turn."""
        flat = int(self._trace.offsets[self._schedule.rows[instance]]) + turn
        text = self._texts.get(instance)
        if text is None:
            text = self._words(0, 0, 0, self._trace.shared_tokens)
        text += self._words(instance + 1, turn, 1, int(self._trace.prompt_tokens[flat]))
        self._texts[instance] = text
        reply = int(self._trace.reply_tokens[flat])
        asked = reply if self._boundary is Boundary.COLOCATED else 1
        return _Job(instance, turn, due_s, list(text), asked)

    def finished(self, job: _Job) -> None:
        """Take a reply and plan the conversation's next turn."""
        row = int(self._schedule.rows[job.instance])
        if job.error or job.turn + 1 >= int(self._trace.turn_counts[row]):
            self._texts.pop(job.instance, None)
            return
        flat = int(self._trace.offsets[row]) + job.turn
        recorded = int(self._trace.reply_tokens[flat])
        if self._boundary is Boundary.COLOCATED:
            self._texts[job.instance] += job.reply[:recorded]
        else:
            self._texts[job.instance] += self._words(job.instance + 1, job.turn, 2, recorded)
        gap = float(self._schedule.gaps_s[self._begins[job.instance] + job.turn])
        at = max(job.sent_s + gap, job.done_s)
        heapq.heappush(self.due, (at, job.instance, job.turn + 1))

    def _words(self, *key_and_count: int) -> list[int]:
        *key, count = key_and_count
        rng = np.random.default_rng([self._seed, *key])
        words: list[int] = rng.integers(*_TOKEN_IDS, count).tolist()
        return words


def replay_on_server(
    server: Server,
    trace: Trace,
    schedule: Schedule,
    *,
    boundary: Boundary = Boundary.DISAGGREGATED,
    seed: int = 0,
    progress: Progress | None = None,
) -> Served:
    """Replay conversations in real time; returns when the last measured one has begun.

    Raises:
        CapacityError: The server refuses, or most requests fail.
    """
    state = _Replay(trace, schedule, boundary, seed)
    jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[_Job] = queue.SimpleQueue()
    begin_s = time.monotonic()
    workers = [_Worker(server, jobs, done, begin_s) for _ in range(server.workers)]
    for worker in workers:
        worker.start()
    end_s = float(schedule.arrivals_s[-1])
    results: list[_Job] = []
    try:
        _drive(state, jobs, done, results, begin_s, end_s, progress)
    finally:
        for _ in workers:
            jobs.put(None)
        for worker in workers:
            worker.join(timeout=server.timeout_s)
    while not done.empty():
        results.append(done.get())
    window = (float(schedule.arrivals_s[schedule.warm_up]), end_s)
    return _served(results, window, float(np.mean(schedule.gaps_s)))


def _drive(
    state: _Replay,
    jobs: queue.SimpleQueue[_Job | None],
    done: queue.SimpleQueue[_Job],
    results: list[_Job],
    begin_s: float,
    end_s: float,
    progress: Progress | None,
) -> None:
    """Send what is due until the window closes."""
    sent = failed = 0
    while True:
        now = time.monotonic() - begin_s
        while state.due and state.due[0][0] <= min(now, end_s):
            jobs.put(state.job(*heapq.heappop(state.due)))
            sent += 1
        if now > end_s and (not state.due or state.due[0][0] > end_s):
            return
        wait = min(state.due[0][0], end_s) - now if state.due else 0.05
        try:
            job = done.get(timeout=max(min(wait, 0.05), 0.0005))
        except queue.Empty:
            continue
        state.finished(job)
        results.append(job)
        failed += bool(job.error)
        if failed > 10 and failed > len(results) / 2:
            raise CapacityError(f"engine: most requests fail ({job.error})")
        if progress is not None and len(results) % 16 == 0:
            progress(len(results), state.turns)


def _served(results: list[_Job], window: tuple[float, float], mean_gap_s: float) -> Served:
    good = sorted((job for job in results if not job.error), key=lambda job: job.sent_s)
    if not good:
        reason = results[0].error if results else "nothing was due"
        raise CapacityError(f"engine: no request was answered ({reason})")
    late = [job.sent_s - job.due_s > _LATE_SHARE * mean_gap_s for job in good]
    return Served(
        instance=np.array([job.instance for job in good], dtype=np.int64),
        turn=np.array([job.turn for job in good], dtype=np.int64),
        sent_s=np.array([job.sent_s for job in good]),
        done_s=np.array([job.done_s for job in good]),
        prompt_tokens=np.array([len(job.prompt) for job in good], dtype=np.int64),
        cached_tokens=np.array([job.cached for job in good], dtype=np.int64),
        window_s=window,
        late_share=float(np.mean(late)),
        failed=len(results) - len(good),
    )
