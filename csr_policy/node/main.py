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
"""The process of the node: signals, autostart, spin, orderly end."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from csr_policy.node.lifecycle import CsrPolicyNode
from csr_policy.node.signals import StopSignals

_FLUSH_S = 0.5
"""At the end, how long answers to open service calls and the last messages may take."""


_FAILURES_IN_A_ROW = 20
"""Callbacks that may fail one after the other; then the process gives up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node until it is told to stop.

    Args:
        arguments: Command line with the program's name; None takes the process's own.

    Returns:
        Exit status: 0 after an orderly stop, 1 where the node could not start or failed.
    """
    signals = StopSignals()
    argv = list(sys.argv if arguments is None else arguments)
    try:
        unknown = remove_ros_args(args=argv)[1:]
        if unknown:
            return _refuse(f"unexpected argument {unknown[0]!r}; expected --ros-args ...")
        rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
        node = CsrPolicyNode()
    except Exception as error:
        return _refuse(" ".join(str(error).split()))
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        return _run(node, executor, signals)
    finally:
        executor.shutdown(_FLUSH_S)
        node.destroy_node()
        rclpy.try_shutdown()


def _run(node: CsrPolicyNode, executor: SingleThreadedExecutor, signals: StopSignals) -> int:
    stop = threading.Event()

    def on_signal(name: str) -> None:
        node.get_logger().info(f"{name}: stopping")
        stop.set()
        # A task wakes the executor and lets its `spin_once` return.
        executor.create_task(lambda: None)

    if not _autostart(node):
        node.trigger_shutdown()
        return 1
    signals.watch(on_signal)
    in_a_row = 0
    while not stop.is_set() and rclpy.ok() and in_a_row < _FAILURES_IN_A_ROW:
        try:
            executor.spin_once()
            in_a_row = 0
        except Exception:
            # A message that cannot be taken off the wire must not end a robot's decisions.
            in_a_row += 1
            node.get_logger().error(f"a callback failed:\n{traceback.format_exc()}")
    _end(node, executor)
    return 0 if stop.is_set() else 1


def _autostart(node: CsrPolicyNode) -> bool:
    try:
        wanted = node.autostart
    except ValueError as error:
        node.get_logger().error(str(error))
        return False
    success = TransitionCallbackReturn.SUCCESS
    return not wanted or (
        node.trigger_configure() == success and node.trigger_activate() == success
    )


def _refuse(reason: str) -> int:
    print(f"csr_policy: {reason}", file=sys.stderr)
    return 1


def _end(node: CsrPolicyNode, executor: SingleThreadedExecutor) -> None:
    """Deactivate, answer what is open, shut down; bounded."""
    node.deactivate_if_active()
    until_s = time.monotonic() + _FLUSH_S
    while node.open_calls and time.monotonic() < until_s:
        executor.spin_once(timeout_sec=0.0)
    node.trigger_shutdown()


if __name__ == "__main__":
    sys.exit(main())
