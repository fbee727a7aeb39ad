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
"""Waits until the policy says that it is ready, so that a launch file can start what follows.

A bag that plays while the engines still load passes by a policy that cannot decide yet.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.utilities import remove_ros_args

from csr_policy.msg import PolicyStatus
from csr_policy.node.qos import latched_profile

PROGRESS_PERIOD_S = 5.0
POLL_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait for `ready` in the policy's status.

    Args:
        arguments: Command line with the program's name; None takes the process's own.

    Returns:
        Exit status: 0 once the policy is ready, 1 where it was not in time or was told to stop.
    """
    argv = list(sys.argv if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout-s", type=float, default=300.0, help="longest time to wait")
    parser.add_argument("--status", default="csr_policy/status", help="topic of the status")
    options = parser.parse_args(remove_ros_args(args=argv)[1:])
    rclpy.init(args=argv)
    node = rclpy.create_node("wait_ready")
    try:
        return _wait(node, options.status, options.timeout_s)
    except (KeyboardInterrupt, ExternalShutdownException):
        return 1
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _wait(node: Node, topic: str, timeout_s: float) -> int:
    newest = PolicyStatus(last_error="no status yet")

    def on_status(status: PolicyStatus) -> None:
        nonlocal newest
        newest = status

    node.create_subscription(PolicyStatus, topic, on_status, latched_profile())
    start_s = progress_s = time.monotonic()
    while not newest.ready:
        rclpy.spin_once(node, timeout_sec=POLL_S)
        now_s = time.monotonic()
        if now_s - start_s > timeout_s:
            node.get_logger().error(f"the policy was not ready within {timeout_s:.0f} s")
            return 1
        if now_s - progress_s >= PROGRESS_PERIOD_S:
            progress_s = now_s
            node.get_logger().info(
                f"waiting for the policy since {now_s - start_s:.0f} s: "
                f"{newest.last_error or newest.phase}"
            )
    node.get_logger().info(f"the policy is ready after {time.monotonic() - start_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
