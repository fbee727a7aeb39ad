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
"""One run of the demo: engines, node, scene and watcher, from start to summary.

Everything that is started is stopped in reverse order, whatever happens, each step bounded.
Owned by the main thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.console import Console

from csr_policy.demo.configuration import NodeConfiguration
from csr_policy.demo.graph import RosGraph
from csr_policy.demo.machine import facts_of_machine, read_processor_times
from csr_policy.demo.node_process import NodeProcess
from csr_policy.demo.scenes import Scene
from csr_policy.demo.summary import (
    DecisionRow,
    RunCounters,
    closing_lines,
    decision_points,
    summarise,
    write_decisions,
    write_summary,
)
from csr_policy.demo.table import LiveTable
from csr_policy.demo.watcher import Watcher
from csr_policy.evaluation.plots import plot_ttft
from csr_policy.serving.models import demo_model
from csr_policy.serving.pair import EnginePair

POLICY = "/csr_policy"
_ENGINE_ARGUMENTS = ("--block-size", "32")
"""The prompt's last, partial block is computed anew for every decision: of vLLM's 128 tokens on
a CPU that is 64 on average, a third of the work here."""
_READY_TIMEOUT_S = 120.0
_AWAITED_TIMEOUT_S = 20.0
_LAST_DECISION_S = 1.5
_DISCOVERY_S = 1.0
_POLL_S = 0.1
_DRAIN_S = 0.5


class SessionError(RuntimeError):
    """The run cannot go on: one line."""


@dataclass(frozen=True, slots=True)
class Target:
    """When a run has seen enough.

    Attributes:
        ok_decisions: OK decisions that are wanted; with `until_finished` at least these.
        swaps: Swaps that are wanted.
        time_limit_s: Longest time from the first decision; the run then ends without.
        until_finished: Go on until the scene has nothing more to show.
    """

    ok_decisions: int
    swaps: int
    time_limit_s: float
    until_finished: bool = False

    def met(self, ok_decisions: int, swaps: int) -> bool:
        """Whether there is enough."""
        return ok_decisions >= self.ok_decisions and swaps >= self.swaps

    def __str__(self) -> str:
        """What is wanted, in words."""
        return f"{self.ok_decisions} OK decisions and {self.swaps} swaps"


class Session:
    """Runs a scene in front of the policy, and leaves its files in a folder."""

    def __init__(
        self,
        console: Console,
        output: Path,
        scene: Scene,
        configuration: NodeConfiguration,
        target: Target,
        explanation: str,
    ) -> None:
        """Prepare a run; nothing is started.

        Args:
            console: Where to draw.
            output: Existing folder for the files.
            scene: What the policy is shown.
            configuration: The node's; with its own engines, a pair is started.
            target: When it is enough.
            explanation: A line or two on what is to be seen.
        """
        self._console = console
        self._output = output
        self._scene = scene
        self._configuration = configuration
        self._target = target
        self._explanation = explanation
        self._pair: EnginePair | None = None
        self._graph: RosGraph | None = None
        self._watcher: Watcher | None = None
        self._node: NodeProcess | None = None
        self._ended: set[str] = set()
        self._processor_times = read_processor_times()

    def run(self) -> int:
        """Start, watch, stop, summarise.

        Returns:
            0 where the target was met, 130 after Ctrl-C.

        Raises:
            SessionError: The target was not met or a part ended early; the errors of the parts
                themselves come through as well. The files are written before.
        """
        interrupted, failure = False, None
        with contextlib.ExitStack() as stack:
            # Entered first, so left last: everything below is stopped by then.
            signals = stack.enter_context(_Signals())
            try:
                self._start(stack)
                self._watch()
            except KeyboardInterrupt:
                interrupted = True
            except Exception as error:
                # What was seen until then is written first.
                failure = error
            finally:
                signals.ignore()
                self._say("stopping the node and the engines")
                self._scene.stop()
                if self._node is not None and not self._node.stop():
                    self._say("the node had to be killed; its log is kept")
                time.sleep(_DRAIN_S if self._watcher else 0.0)
        rows = self._watcher.rows if self._watcher else []
        if rows:
            self._write(rows)
        if failure is not None:
            raise failure
        if interrupted:
            return 130
        if not self._target.met(sum(row.ok for row in rows), self._counters.swaps):
            raise SessionError(f"the run ended before there were {self._target}")
        return 0

    def _start(self, stack: contextlib.ExitStack) -> None:
        logs = self._output / "logs"
        logs.mkdir(exist_ok=True)
        self._graph = RosGraph.open()
        stack.callback(self._graph.close)
        self._watcher = Watcher(
            policy=POLICY,
            context=self._graph.context,
            observation_at=self._scene.observation_at,
        )
        self._graph.add(self._watcher)
        time.sleep(_DISCOVERY_S)
        self._refuse_second_policy(self._watcher)
        environment: dict[str, str] = {}
        if self._configuration.own_engines:
            environment = self._start_engines(stack, logs)
            self._refuse_second_policy(self._watcher)
        self._scene.enter(self._graph)
        self._node = NodeProcess(self._configuration.parameters, logs)
        stack.callback(self._node.stop)
        self._say("starting the policy's node")
        self._node.start(environment)
        if not self._wait(self._is_ready, _READY_TIMEOUT_S):
            reason = self._node.last_error() or self._last_error()
            raise SessionError(
                f"the policy is not ready after {_READY_TIMEOUT_S:.0f} s{reason and ': ' + reason}"
            )
        if not self._wait(lambda: not self._scene.awaited, _AWAITED_TIMEOUT_S):
            self._say(f"starting without {self._scene.awaited}")
        self._scene.start()

    def _refuse_second_policy(self, watcher: Watcher) -> None:
        if watcher.policy_is_there:
            domain = os.environ.get("ROS_DOMAIN_ID", "0")
            raise SessionError(
                f"a node {POLICY} runs already in this ROS domain: stop it, or choose another "
                f"ROS_DOMAIN_ID than {domain}"
            )

    def _start_engines(self, stack: contextlib.ExitStack, logs: Path) -> dict[str, str]:
        model = demo_model(progress=self._say)
        self._say("starting two vLLM servers with SmolLM2-135M-Instruct (about a minute)")
        pair = EnginePair(model, log_folder=logs, extra_arguments=_ENGINE_ARGUMENTS)
        stack.callback(pair.stop)
        pair.start(progress=self._say)
        self._pair = pair
        self._configuration = self._configuration.on_engines(pair.urls, model)
        return {self._configuration.settings.engine.api_key_env: pair.api_key}

    def _watch(self) -> None:
        assert self._watcher is not None, "_start comes first"
        finished_s: float | None = None
        with LiveTable(self._console, self._explanation) as table:
            while True:
                self._check()
                for row in self._watcher.take_new():
                    table.add(row)
                rows, counters = self._watcher.rows, self._watcher.counters()
                table.status(self._status_line(rows, counters))
                if self._scene.finished and finished_s is None:
                    finished_s = time.monotonic()
                if self._is_over(rows, counters, finished_s):
                    return
                time.sleep(_POLL_S)

    def _is_over(
        self, rows: list[DecisionRow], counters: RunCounters, finished_s: float | None
    ) -> bool:
        if rows and rows[-1].time_s >= self._target.time_limit_s:
            return True
        if self._target.until_finished:
            # What came last is to be seen by one more decision.
            return finished_s is not None and time.monotonic() - finished_s > _LAST_DECISION_S
        return self._target.met(sum(row.ok for row in rows), counters.swaps)

    def _status_line(self, rows: list[DecisionRow], counters: RunCounters) -> str:
        status = self._watcher.status if self._watcher else None
        memory = f"{status.static_tokens} of {counters.tau_mem_tokens} tokens" if status else ""
        phase = f", {status.phase}" if status and status.phase != "idle" else ""
        target = "" if self._target.until_finished else f"; it ends at {self._target}"
        return (
            f"{sum(row.ok for row in rows)} OK of {len(rows)} decisions, {counters.swaps} swaps"
            f"{target}\nmemory {memory}{phase}; {self._scene.progress}"
        )

    def _write(self, rows: list[DecisionRow]) -> None:
        """Write the files, and say what is in them."""
        counters = self._counters
        machine = facts_of_machine(self._processor_times)
        summary = summarise(rows, counters, {**self._scene.facts(), **machine})
        write_decisions(self._output / "decisions.csv", rows)
        write_summary(self._output / "summary.json", summary)
        plot_ttft(
            decision_points(rows),
            self._output / "ttft.png",
            title=f"{summary['source']}: {len(rows)} decisions, {counters.swaps} swaps",
            tau_mem_tokens=counters.tau_mem_tokens,
            deadline_s=self._configuration.settings.deadline_s,
        )
        self._console.print()
        for line in closing_lines(summary):
            self._say(line)
        self._say(
            f"files      {self._output}/decisions.csv, summary.json, ttft.png; logs in logs/"
        )

    @property
    def _counters(self) -> RunCounters:
        return self._watcher.counters() if self._watcher else RunCounters()

    def _is_ready(self) -> bool:
        status = self._watcher.status if self._watcher else None
        return status is not None and bool(status.ready)

    def _last_error(self) -> str:
        status = self._watcher.status if self._watcher else None
        return str(status.last_error) if status else ""

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition; False when the time is over."""
        until_s = time.monotonic() + timeout_s
        while not condition():
            self._check()
            if time.monotonic() > until_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _check(self) -> None:
        """Raise if a part has ended."""
        if self._graph is not None:
            self._graph.check()
        if self._node is not None:
            self._node.check()
        if self._scene.failure:
            raise SessionError(self._scene.failure)
        if self._pair is not None:
            self._check_engines(self._pair)

    def _check_engines(self, pair: EnginePair) -> None:
        """One engine may end, by hand or by fault: the policy goes on with the other."""
        ended = {server.name for server in pair.servers if not server.running}
        for name in sorted(ended - self._ended):
            self._say(f"{name} has ended")
        self._ended |= ended
        if len(ended) == len(pair.servers):
            pair.check()

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class _Signals:
    """SIGTERM ends a run the way Ctrl-C does; while it stops, neither disturbs it."""

    def __enter__(self) -> Self:
        self._before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGTERM, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """From now on to the end; what is left to do is bounded."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    @staticmethod
    def _interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt
