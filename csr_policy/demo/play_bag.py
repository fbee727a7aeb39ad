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
"""Plays a recording with its clock, where rosbag2's own player is not installed.

    play_bag BAG [--rate RATE] [--ros-args ...]

The topics and /clock are those of `ros2 bag play --clock`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from rosgraph_msgs.msg import Clock

from csr_policy.demo.bag_player import BagPlayer, playable_topics
from csr_policy.observation.bag_storage import BagError
from csr_policy.observation.bags import BagReader

CLOCK_PERIOD_S = 1 / 40
PROGRESS_PERIOD_S = 5.0
DISCOVERY_S = 2.0
"""How long subscribers get to find the publishers before the first message."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the recording once.

    Args:
        arguments: Command line with the program's name; None takes the process's own.

    Returns:
        Exit status: 0 at the recording's end or after a stop signal, 1 where it cannot be read.
    """
    argv = list(sys.argv if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="play_bag", description=__doc__)
    parser.add_argument("bag", type=Path)
    parser.add_argument("--rate", type=float, default=1.0)
    options = parser.parse_args(remove_ros_args(args=argv)[1:])
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("play_bag")
    try:
        with BagReader(options.bag) as reader:
            return _play(node, reader, options.rate, stop)
    except BagError as error:
        node.get_logger().error(str(error))
        return 1
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _play(node: Node, reader: BagReader, rate: float, stop: threading.Event) -> int:
    clock = node.create_publisher(Clock, "/clock", 1)
    player = BagPlayer(node, reader, playable_topics(reader), {}, rate=rate)
    if player.refused:
        node.get_logger().warning(
            f"{len(player.refused)} topics cannot be played here: {', '.join(player.refused)}"
        )
    if stop.wait(DISCOVERY_S):
        return 0
    player.start()
    started_s = progress_s = time.monotonic()
    while not player.finished and not stop.wait(CLOCK_PERIOD_S):
        now_s = time.monotonic()
        position_s = (now_s - started_s) * rate
        clock.publish(_clock(reader.start_ns + round(position_s * 1e9)))
        if now_s - progress_s >= PROGRESS_PERIOD_S:
            progress_s = now_s
            node.get_logger().info(
                f"{position_s:.0f} of {reader.duration_s:.0f} s played, "
                f"{player.published} messages"
            )
    player.stop()
    node.get_logger().info(f"{player.published} messages played")
    if player.failure:
        node.get_logger().error(player.failure)
    return 1 if player.failure else 0


def _clock(stamp_ns: int) -> Clock:
    clock = Clock()
    clock.clock.sec, clock.clock.nanosec = divmod(stamp_ns, 1_000_000_000)
    return clock


if __name__ == "__main__":
    sys.exit(main())
