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
"""Default templates by message type: what is worth its tokens, with units and frames.

Data, so that the documentation can list them. `msg` is the message's view, the filters
are those of `templates.py`. A template that comes out empty means that this message is
no observation.
"""

from __future__ import annotations

from collections.abc import Mapping

GENERIC_TEMPLATE = "{{ msg | fields }}"
"""Template of every type that has none of its own."""

_NUMBER = "{{ msg.data }}"
_ARRAY = "{{ msg.data }}"
_STAMP = ", stamp {{ msg.header.stamp | seconds | num(1) }} s{{ msg.header | in_frame }}"
DEFAULT_TEMPLATES: Mapping[str, str] = {
    "csr_policy/msg/ActionDecision": (
        "{% if msg.outcome == msg.OK %}chose {{ msg.action }}"
        "{% else %}no choice, {{ msg.action or 'no action' }}: {{ msg.reason }}{% endif %}"
    ),
    "csr_policy/msg/StateChunk": "{{ msg.text }}",
    "diagnostic_msgs/msg/DiagnosticArray": "{{ msg | diagnostics }}",
    "geometry_msgs/msg/Accel": (
        "linear {{ msg.linear | axes }} m/s2, angular {{ msg.angular | axes }} rad/s2"
    ),
    "geometry_msgs/msg/AccelStamped": (
        "linear {{ msg.accel.linear | axes }} m/s2, angular {{ msg.accel.angular | axes }} rad/s2"
        "{{ msg.header | in_frame }}"
    ),
    "geometry_msgs/msg/Point": "{{ msg | position }}",
    "geometry_msgs/msg/PointStamped": "{{ msg.point | position }}{{ msg.header | in_frame }}",
    "geometry_msgs/msg/Pose": "{{ msg | pose }}",
    "geometry_msgs/msg/PoseArray": (
        "{{ msg.poses | length }} poses"
        "{% if msg.poses %}, first {{ msg.poses[0] | pose }}{% endif %}{{ msg.header | in_frame }}"
    ),
    "geometry_msgs/msg/PoseStamped": "{{ msg.pose | pose }}{{ msg.header | in_frame }}",
    "geometry_msgs/msg/PoseWithCovariance": "{{ msg.pose | pose }}",
    "geometry_msgs/msg/PoseWithCovarianceStamped": (
        "{{ msg.pose.pose | pose }}{{ msg.header | in_frame }}"
    ),
    "geometry_msgs/msg/Quaternion": "{{ msg | attitude }}",
    "geometry_msgs/msg/QuaternionStamped": (
        "{{ msg.quaternion | attitude }}{{ msg.header | in_frame }}"
    ),
    "geometry_msgs/msg/Transform": "{{ msg | transform }}",
    "geometry_msgs/msg/TransformStamped": (
        "{{ msg.header.frame_id }} to {{ msg.child_frame_id }} {{ msg.transform | transform }}"
    ),
    "geometry_msgs/msg/Twist": "{{ msg | twist }}",
    "geometry_msgs/msg/TwistStamped": "{{ msg.twist | twist }}{{ msg.header | in_frame }}",
    "geometry_msgs/msg/TwistWithCovariance": "{{ msg.twist | twist }}",
    "geometry_msgs/msg/TwistWithCovarianceStamped": (
        "{{ msg.twist.twist | twist }}{{ msg.header | in_frame }}"
    ),
    "geometry_msgs/msg/Vector3": "{{ msg | axes }}",
    "geometry_msgs/msg/Vector3Stamped": "{{ msg.vector | axes }}{{ msg.header | in_frame }}",
    "geometry_msgs/msg/Wrench": (
        "force {{ msg.force | axes }} N, torque {{ msg.torque | axes }} N m"
    ),
    "geometry_msgs/msg/WrenchStamped": (
        "force {{ msg.wrench.force | axes }} N, torque {{ msg.wrench.torque | axes }} N m"
        "{{ msg.header | in_frame }}"
    ),
    "nav_msgs/msg/OccupancyGrid": "{{ msg | grid }}{{ msg.header | in_frame }}",
    "nav_msgs/msg/Odometry": (
        "{{ msg.pose.pose | pose }}{{ msg.header | in_frame }}, {{ msg.twist.twist | twist }}"
    ),
    "nav_msgs/msg/Path": "{{ msg | path }}",
    "rcl_interfaces/msg/Log": (
        "{% if msg.level >= msg.WARN %}"
        "{{ {30: 'WARN', 40: 'ERROR', 50: 'FATAL'}.get(msg.level, msg.level) }}"
        " {{ msg.name }}: {{ msg.msg }}{% endif %}"
    ),
    "rosgraph_msgs/msg/Clock": "{{ msg.clock | seconds | num(1) }} s",
    "sensor_msgs/msg/BatteryState": "{{ msg | battery }}",
    "sensor_msgs/msg/CameraInfo": (
        "{{ msg.width }} x {{ msg.height }} pixels{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/CompressedImage": (
        "{{ msg.data | length }} bytes{% if msg.format %} {{ msg.format }}{% endif %}" + _STAMP
    ),
    "sensor_msgs/msg/FluidPressure": (
        "{{ (msg.fluid_pressure / 1000) | num(2) }} kPa{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/Illuminance": (
        "{{ msg.illuminance | num(1) }} lux{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/Image": (
        "{{ msg.width }} x {{ msg.height }} pixels"
        "{% if msg.encoding %} {{ msg.encoding }}{% endif %}" + _STAMP
    ),
    "sensor_msgs/msg/Imu": "{{ msg | imu }}{{ msg.header | in_frame }}",
    "sensor_msgs/msg/JointState": "{{ msg | joints }}",
    "sensor_msgs/msg/Joy": "{{ msg | joystick }}",
    "sensor_msgs/msg/LaserScan": "{{ msg | sectors }}{{ msg.header | in_frame }}",
    "sensor_msgs/msg/MagneticField": (
        "x {{ (msg.magnetic_field.x * 1e6) | num(1) }}"
        " y {{ (msg.magnetic_field.y * 1e6) | num(1) }}"
        " z {{ (msg.magnetic_field.z * 1e6) | num(1) }} uT{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/NavSatFix": (
        "{{ {-1: 'no fix', 0: 'fix', 1: 'SBAS fix', 2: 'GBAS fix'}"
        ".get(msg.status.status, 'unknown fix') }}, "
        "lat {{ msg.latitude | num(6) }} lon {{ msg.longitude | num(6) }} deg "
        "alt {{ msg.altitude | num(1) }} m{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/PointCloud2": "{{ msg.width * msg.height }} points" + _STAMP,
    "sensor_msgs/msg/Range": (
        "{% if msg.range > msg.max_range %}clear up to {{ msg.max_range | num(2) }} m"
        "{% elif msg.range < msg.min_range %}closer than {{ msg.min_range | num(2) }} m"
        "{% else %}{{ msg.range | num(2) }} m{% endif %}{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/RelativeHumidity": (
        "{{ (msg.relative_humidity * 100) | num(0) }} % humidity{{ msg.header | in_frame }}"
    ),
    "sensor_msgs/msg/Temperature": "{{ msg.temperature | num(1) }} C{{ msg.header | in_frame }}",
    "std_msgs/msg/Bool": _NUMBER,
    "std_msgs/msg/Byte": _NUMBER,
    "std_msgs/msg/ByteMultiArray": _ARRAY,
    "std_msgs/msg/Char": _NUMBER,
    "std_msgs/msg/ColorRGBA": (
        "red {{ msg.r | num(2) }} green {{ msg.g | num(2) }} blue {{ msg.b | num(2) }}"
        " alpha {{ msg.a | num(2) }}"
    ),
    "std_msgs/msg/Empty": "received",
    "std_msgs/msg/Float32": _NUMBER,
    "std_msgs/msg/Float32MultiArray": _ARRAY,
    "std_msgs/msg/Float64": _NUMBER,
    "std_msgs/msg/Float64MultiArray": _ARRAY,
    "std_msgs/msg/Int16": _NUMBER,
    "std_msgs/msg/Int16MultiArray": _ARRAY,
    "std_msgs/msg/Int32": _NUMBER,
    "std_msgs/msg/Int32MultiArray": _ARRAY,
    "std_msgs/msg/Int64": _NUMBER,
    "std_msgs/msg/Int64MultiArray": _ARRAY,
    "std_msgs/msg/Int8": _NUMBER,
    "std_msgs/msg/Int8MultiArray": _ARRAY,
    "std_msgs/msg/String": "{{ msg.data.strip() or 'empty' }}",
    "std_msgs/msg/UInt16": _NUMBER,
    "std_msgs/msg/UInt16MultiArray": _ARRAY,
    "std_msgs/msg/UInt32": _NUMBER,
    "std_msgs/msg/UInt32MultiArray": _ARRAY,
    "std_msgs/msg/UInt64": _NUMBER,
    "std_msgs/msg/UInt64MultiArray": _ARRAY,
    "std_msgs/msg/UInt8": _NUMBER,
    "std_msgs/msg/UInt8MultiArray": _ARRAY,
    "tf2_msgs/msg/TFMessage": "{{ msg | transforms }}",
}
