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
"""The lifecycle node: reads parameters, walks the lifecycle, delegates."""

from __future__ import annotations

from collections.abc import Callable

from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from csr_policy.node import log_bridge
from csr_policy.node.node_parameters import NodeParameters
from csr_policy.node.runtime import Runtime
from csr_policy.policy import PolicyError

NODE_NAME = "csr_policy"
_SUCCESS = TransitionCallbackReturn.SUCCESS
_FAILURE = TransitionCallbackReturn.FAILURE


class CsrPolicyNode(LifecycleNode):
    """`csr_policy` in the graph. All of it belongs to the executor's thread.

    rclpy swallows what a transition raises; here each catches, logs one line and fails.
    """

    def __init__(self) -> None:
        """Create the node, unconfigured, with its parameters declared."""
        super().__init__(NODE_NAME)
        log_bridge.install(self.get_logger())
        self._table = NodeParameters(self)
        self._runtime: Runtime | None = None
        self._change_state = self._service_change_state.callback
        self._service_change_state.callback = self._on_change_state

    @property
    def autostart(self) -> bool:
        """Whether the process takes the node to active by itself.

        Raises:
            ValueError: The parameter is not a bool; one line.
        """
        return self._table.autostart

    @property
    def open_calls(self) -> int:
        """Service calls that the executor still has to answer."""
        return self._runtime.open_calls if self._runtime else 0

    def deactivate_if_active(self) -> None:
        """Deactivate, whatever the state."""
        if self._state_machine.current_state[1] == "active":
            self.trigger_deactivate()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters, open journal and tokenizer, appear in the graph."""
        return self._attempt("configure", self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start the threads; engines are contacted in the background."""
        return self._attempt("activate", lambda: self._present().start())

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Publish a fallback and stop the threads."""
        return self._attempt("deactivate", lambda: self._present().stop())

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Leave the graph, close the journal."""
        return self._attempt("clean up", self._release)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and release whatever the state has left."""
        return self._attempt("shut down", lambda: self._end(state))

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything, so that the node can be configured again."""
        return self._attempt("recover", lambda: self._end(state))

    def _on_change_state(
        self, request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        """Refuse a transition that the state does not have; rclpy's own raises and ends spin."""
        wanted = request.transition
        for number, label, *_ in self._state_machine.available_transitions:
            if wanted.label == label or (not wanted.label and wanted.id == number):
                return self._change_state(request, response)
        state = self._state_machine.current_state[1]
        self.get_logger().error(
            f"transition '{wanted.label or wanted.id}': state '{state}' does not have it"
        )
        response.success = False
        return response

    def _configure(self) -> None:
        settings = self._table.read()
        self._runtime = Runtime(self, settings)
        self._table.freeze(True)

    def _release(self) -> None:
        runtime, self._runtime = self._runtime, None
        self._table.freeze(False)
        if runtime is not None:
            runtime.close()

    def _end(self, state: LifecycleState) -> None:
        if self._runtime is not None and state.label == "active":
            self._runtime.stop()
        self._release()

    def _present(self) -> Runtime:
        assert self._runtime is not None, "the lifecycle configures before it activates"
        return self._runtime

    def _attempt(self, name: str, transition: Callable[[], None]) -> TransitionCallbackReturn:
        try:
            transition()
        except (PolicyError, ValueError) as error:
            self.get_logger().error(f"cannot {name}: {error}")
            return _FAILURE
        except Exception as error:
            self.get_logger().error(f"cannot {name}: {type(error).__name__}: {error}")
            return _FAILURE
        return _SUCCESS
