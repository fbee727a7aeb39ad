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
"""The demo's own corner of the ROS graph: a context, an executor in a thread, some nodes.

`open` sets, where the user has not, that nodes talk on this machine only: a demo that is tried
in an office must not drive somebody's robot. Owned by one thread.
"""

from __future__ import annotations

import os
import threading
import traceback
from typing import Self

import rclpy
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

_RANGE_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
_JOIN_S = 5.0


class GraphError(RuntimeError):
    """The ROS side of the demo cannot go on: one line."""


class RosGraph:
    """Spins nodes until it is closed."""

    def __init__(self) -> None:
        """Initialise ROS."""
        os.environ.setdefault(_RANGE_VARIABLE, "LOCALHOST")
        self.context = Context()
        # Signals belong to the run, which ends everything in order.
        rclpy.init(context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._nodes: list[Node] = []
        self._failure = ""
        self._thread = threading.Thread(target=self._spin, name="demo_executor", daemon=True)

    @classmethod
    def open(cls) -> Self:
        """Initialise ROS and start to spin."""
        graph = cls()
        graph._thread.start()
        return graph

    def add(self, node: Node) -> None:
        """Spin a node; it is destroyed by `close`."""
        self._nodes.append(node)
        self._executor.add_node(node)
        self._executor.wake()

    def check(self) -> None:
        """Raise if a callback has failed.

        Raises:
            GraphError: One has.
        """
        if self._failure:
            raise GraphError(f"a callback of the demo failed: {self._failure}")

    def close(self) -> None:
        """Stop spinning, destroy the nodes, shut ROS down; bounded."""
        self.context.try_shutdown()
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            for node in self._nodes:
                node.destroy_node()
            self._executor.shutdown(_JOIN_S)

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return
        except Exception as error:
            self._failure = " ".join(str(error).split()) or type(error).__name__
            traceback.print_exc()
