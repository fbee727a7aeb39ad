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
"""Questions beside the control loop: `~/decide` and `~/ask`.

A service callback of rclpy must not wait, and a Future that another thread sets is
never resumed. So a callback here awaits a Future that the executor itself completes,
and the waiting is done in a bounded set of threads.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from rclpy.executors import Executor
from rclpy.task import Future

from csr_policy.node.messages import (
    ask_refusal,
    ask_response,
    decide_refusal,
    decide_response,
)
from csr_policy.policy import Policy
from csr_policy.settings import AskSettings
from csr_policy.srv import Ask, Decide

_STOPPING = "the node is not active"
_Response = TypeVar("_Response")


class QuestionPool:
    """Runs at most a number of questions at once and refuses one more at once.

    `submit` and `close` belong to the executor's thread; the work runs in threads of
    its own, one each.
    """

    def __init__(
        self,
        workers: int,
        executor: Callable[[], Executor | None],
        log_error: Callable[[str], None],
    ) -> None:
        """Serve `workers` questions at once; results are completed in `executor()`."""
        self._workers = workers
        self._log_error = log_error
        self._executor = executor
        self._pending: dict[Future, object] = {}
        self._lock = threading.Lock()
        self._open = False
        self._refused = 0

    @property
    def refused(self) -> int:
        """Questions that were answered at once because the pool was full."""
        return self._refused

    @property
    def pending(self) -> int:
        """Questions that are being asked."""
        return len(self._pending)

    def open(self) -> None:
        """Take questions."""
        self._open = True

    def close(self) -> None:
        """Take no more questions and answer those being asked with their refusal."""
        self._open = False
        with self._lock:
            waiting = list(self._pending.items())
            self._pending.clear()
        for future, refusal in waiting:
            future.set_result(refusal)

    def submit(self, ask: Callable[[], object], refuse: Callable[[str], object]) -> Future:
        """Start a question.

        Args:
            ask: Blocks until there is a response; runs in a question thread.
            refuse: Makes the response that gives a reason instead.

        Returns:
            A Future for the executor's thread to await.
        """
        future: Future = Future(executor=self._executor())
        with self._lock:
            full = len(self._pending) >= self._workers
            if self._open and not full:
                self._pending[future] = refuse(_STOPPING)
        if not self._open:
            future.set_result(refuse(_STOPPING))
        elif full:
            self._refused += 1
            future.set_result(
                refuse(f"busy: {self._workers} questions are being asked (ask.workers)")
            )
        else:
            threading.Thread(
                target=self._run, args=(future, ask, refuse), name="question", daemon=True
            ).start()
        return future

    def _run(
        self, future: Future, ask: Callable[[], object], refuse: Callable[[str], object]
    ) -> None:
        try:
            response = ask()
        except ValueError as error:
            response = refuse(str(error))
        except Exception as error:
            self._log_error(f"question failed:\n{traceback.format_exc()}")
            response = refuse(" ".join(f"internal: {type(error).__name__}: {error}".split()))
        with self._lock:
            if self._pending.pop(future, None) is None:
                return
        executor = self._executor()
        if executor is not None:
            executor.create_task(future.set_result, response)


class Questions:
    """The callbacks of the two services; they run in a reentrant callback group."""

    def __init__(
        self,
        policy: Policy,
        pool: QuestionPool,
        settings: AskSettings,
        obstacle: Callable[[], str],
    ) -> None:
        """Ask `policy`, within the bounds of `settings`, while there is no `obstacle()`."""
        self._policy = policy
        self._pool = pool
        self._settings = settings
        self._obstacle = obstacle
        self._open_calls = 0

    @property
    def open_calls(self) -> int:
        """Service calls that have no response yet."""
        return self._open_calls

    async def on_decide(
        self, request: Decide.Request, response: Decide.Response
    ) -> Decide.Response:
        """Answer one `~/decide`."""
        longest_s = self._settings.timeout_s
        if not 0.0 <= request.deadline_s <= longest_s:
            return decide_refusal(
                f"deadline_s: is {request.deadline_s}; expected [0, {longest_s:g}] "
                "(ask.timeout_s), 0 for the longest"
            )
        problem = _actions_problem(request.actions)
        if problem:
            return decide_refusal(problem)
        return await self._answer(lambda: self._decide(request), decide_refusal)

    async def on_ask(self, request: Ask.Request, response: Ask.Response) -> Ask.Response:
        """Answer one `~/ask`."""
        most = self._settings.max_tokens
        if not request.question.strip():
            return ask_refusal("question: is empty; expected text")
        if request.max_tokens > most:
            return ask_refusal(
                f"max_tokens: is {request.max_tokens}; expected [0, {most}] (ask.max_tokens), "
                "0 for the most"
            )
        return await self._answer(lambda: self._ask(request), ask_refusal)

    async def _answer(
        self, ask: Callable[[], _Response], refuse: Callable[[str], _Response]
    ) -> _Response:
        obstacle = self._obstacle()
        if obstacle:
            return refuse(obstacle)
        self._open_calls += 1
        try:
            return await self._pool.submit(ask, refuse)
        finally:
            self._open_calls -= 1

    def _decide(self, request: Decide.Request) -> Decide.Response:
        decision = self._policy.decide(
            task=request.task.strip() or None,
            actions=tuple(request.actions) or None,
            deadline_s=request.deadline_s or self._settings.timeout_s,
            remember=request.remember,
        )
        return decide_response(decision)

    def _ask(self, request: Ask.Request) -> Ask.Response:
        return ask_response(
            self._policy.ask(request.question, max_tokens=request.max_tokens or None)
        )


def _actions_problem(actions: Sequence[str]) -> str:
    """One line on an action set that a question cannot have; empty for a good one."""
    for action in actions:
        if action != action.strip() or not action or "\n" in action:
            return f"actions: {action!r}; expected text without surrounding space"
    if len(set(actions)) != len(actions):
        return f"actions: {list(actions)} repeats a label; expected distinct ones"
    return ""
