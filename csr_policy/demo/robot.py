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
"""The demo's robot: a ROS node around a `World`, in a closed loop with the policy.

Publishes `odom`, `battery`, `view` and `beacon` in its namespace, obeys the policy's `~/action`
and answers on `~/action_result`. Callbacks run in the executor's thread; `observation_at` may be
called from any.
"""

from __future__ import annotations

import math
import time

from geometry_msgs.msg import Point, Quaternion
from nav_msgs.msg import Odometry
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import BatteryState
from std_msgs.msg import String

from csr_policy.demo.sightings import Sightings
from csr_policy.demo.world import World, WorldError

_STATE_PERIOD_S = 1.0
_DEPTH = 10


class RobotNode(Node):
    """A robot that drives where the policy says."""

    def __init__(self, world: World, *, policy: str, context: Context) -> None:
        """Make the node in the namespace `/robot`; it starts to publish at once.

        Args:
            world: What it moves in; the node's from now on, until `destroy_node`.
            policy: Full name of the policy's node.
            context: ROS context.
        """
        super().__init__("minigrid", namespace="/robot", context=context)
        self.world = world
        self._spent_s = self._moved_s = time.monotonic()
        self._speed_mps = 0.0
        self._told: Sightings[str] = Sightings()
        self._odom = self.create_publisher(Odometry, "odom", _DEPTH)
        self._battery = self.create_publisher(BatteryState, "battery", _DEPTH)
        self._view = self.create_publisher(String, "view", _DEPTH)
        self._beacon = self.create_publisher(String, "beacon", _DEPTH)
        self._result = self.create_publisher(String, f"{policy}/action_result", _DEPTH)
        self.create_subscription(String, f"{policy}/action", self._on_action, _DEPTH)
        clock = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(_STATE_PERIOD_S, self._publish_state, clock=clock)

    def observation_at(self, stamp_ns: int) -> str:
        """What it had told of itself last at a time, in one line."""
        return self._told.at(stamp_ns) or ""

    def destroy_node(self) -> None:
        """Close the world as well."""
        self.world.close()
        super().destroy_node()

    def _on_action(self, message: String) -> None:
        try:
            result = self.world.move(message.data)
        except WorldError as error:
            self.get_logger().warning(str(error))
            self._result.publish(String(data=f"refused: {error}"))
            return
        now_s = time.monotonic()
        self._speed_mps = result.moved_m / max(now_s - self._moved_s, 1e-3)
        self._moved_s = now_s
        self._result.publish(String(data=result.text))
        self._publish_state()

    def _publish_state(self) -> None:
        now_s = time.monotonic()
        self.world.battery.spend(seconds=now_s - self._spent_s)
        self._spent_s = now_s
        told = f"goal {self.world.way()}, {self.world.view()}"
        self._told.add(time.time_ns(), told)
        self._view.publish(String(data=self.world.view()))
        self._beacon.publish(String(data=self.world.beacon()))
        self._odom.publish(self._odometry())
        self._battery.publish(self._battery_state())

    def _odometry(self) -> Odometry:
        pose = self.world.pose
        message = Odometry(child_frame_id="base_link")
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.frame_id = "odom"
        message.pose.pose.position = Point(x=pose.x_m, y=pose.y_m, z=0.0)
        half_rad = pose.heading_rad / 2
        message.pose.pose.orientation = Quaternion(z=math.sin(half_rad), w=math.cos(half_rad))
        message.twist.twist.linear.x = self._speed_mps
        return message

    def _battery_state(self) -> BatteryState:
        battery = self.world.battery
        message = BatteryState(
            voltage=battery.voltage_v,
            current=math.nan,
            temperature=math.nan,
            charge=math.nan,
            capacity=math.nan,
            design_capacity=math.nan,
            percentage=battery.share,
            power_supply_status=BatteryState.POWER_SUPPLY_STATUS_DISCHARGING,
            power_supply_technology=BatteryState.POWER_SUPPLY_TECHNOLOGY_LION,
            present=True,
        )
        message.header.stamp = self.get_clock().now().to_msg()
        return message
