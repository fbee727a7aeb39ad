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
"""Default templates: a golden text, NaN, empty and huge messages of every type.

Every message is rendered twice, as rclpy's class and as rosbags' after the way over the
wire, and the two texts must be equal.
"""

from __future__ import annotations

import array
import importlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.bag_types import TypeCatalogue
from csr_policy.observation.defaults import DEFAULT_TEMPLATES
from csr_policy.observation.templates import compile_template, default_source, default_text

pytest.importorskip("rclpy", reason="needs ROS 2's message classes")
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import (
    Accel,
    Point,
    Pose,
    PoseArray,
    PoseStamped,
    PoseWithCovarianceStamped,
    Quaternion,
    TransformStamped,
    Twist,
    TwistStamped,
    Vector3,
    Wrench,
)
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from rcl_interfaces.msg import Log
from rclpy.serialization import serialize_message
from sensor_msgs.msg import (
    BatteryState,
    CompressedImage,
    FluidPressure,
    Illuminance,
    Image,
    Imu,
    JointState,
    Joy,
    LaserScan,
    MagneticField,
    NavSatFix,
    PointCloud2,
    Range,
    RelativeHumidity,
    Temperature,
)
from std_msgs.msg import (
    Bool,
    Byte,
    ByteMultiArray,
    Empty,
    Float32,
    Float64MultiArray,
    Header,
    Int32,
    String,
    UInt8MultiArray,
    UInt64,
)

CATALOGUE = TypeCatalogue({})
LIMIT = 2000


def header(frame: str = "", sec: int = 0) -> Header:
    return Header(frame_id=frame, stamp=Time(sec=sec))


def facing(yaw_deg: float) -> Quaternion:
    half = math.radians(yaw_deg) / 2
    return Quaternion(z=math.sin(half), w=math.cos(half))


def pose(x: float, y: float, yaw_deg: float = 0.0, z: float = 0.0) -> Pose:
    return Pose(position=Point(x=x, y=y, z=z), orientation=facing(yaw_deg))


def twist(forward: float, turn: float) -> Twist:
    return Twist(linear=Vector3(x=forward), angular=Vector3(z=turn))


def odometry() -> Odometry:
    message = Odometry(header=header("odom"), child_frame_id="base_link")
    message.pose.pose = pose(1.2399, -0.5, 90.0)
    message.twist.twist = twist(0.5, 0.2094)
    return message


def pose_with_covariance() -> PoseWithCovarianceStamped:
    message = PoseWithCovarianceStamped(header=header("map"))
    message.pose.pose = pose(3.0, 4.0, -45.0, z=-1.5)
    return message


def imu(*, orientation_known: bool = True) -> Imu:
    message = Imu(header=header("imu_link"), orientation=facing(19.0))
    message.angular_velocity = Vector3(z=0.52)
    message.linear_acceleration = Vector3(x=0.12, z=9.81)
    if not orientation_known:
        message.orientation_covariance[0] = -1.0
    return message


def fix() -> NavSatFix:
    message = NavSatFix(header=header("gps"), latitude=40.0717523, longitude=-111.6002131)
    message.altitude = 1556.42
    message.status.status = 0
    return message


def scan() -> LaserScan:
    """Eight rays from -180 to 135 degrees: back, right and left see, the front is free."""
    return LaserScan(
        header=header("laser"),
        angle_min=-math.pi,
        angle_max=3 * math.pi / 4,
        angle_increment=math.pi / 4,
        range_min=0.1,
        range_max=10.0,
        ranges=[2.5, 3.0, 1.25, math.inf, math.inf, math.inf, math.nan, 0.01],
    )


def path() -> Path:
    steps = [(0.0, 0.0), (3.0, 4.0), (3.0, 10.0)]
    return Path(header=header("map"), poses=[PoseStamped(pose=pose(x, y)) for x, y in steps])


def grid() -> OccupancyGrid:
    message = OccupancyGrid(header=header("map"), data=[-1] * 50 + [0] * 40 + [100] * 10)
    message.info.width, message.info.height, message.info.resolution = 20, 5, 0.05
    return message


def diagnostics() -> DiagnosticArray:
    def status(level: bytes, name: str, message: str = "") -> DiagnosticStatus:
        return DiagnosticStatus(level=level, name=name, message=message)

    return DiagnosticArray(
        status=[
            status(b"\x00", "camera"),
            status(b"\x01", "wheel", "slips"),
            status(b"\x02", "motor", "too hot"),
            status(b"\x03", "gps"),
            status(b"\x00", "imu"),
        ]
    )


def transform() -> TransformStamped:
    message = TransformStamped(header=header("map"), child_frame_id="odom")
    message.transform.translation = Vector3(x=1.0, y=2.0)
    message.transform.rotation = facing(3.0)
    return message


def pressure() -> FluidPressure:
    return FluidPressure(header=header("baro"), fluid_pressure=101325.0, variance=2.0)


GOLDEN = [
    ("bool", Bool(data=True), "true"),
    ("byte", Byte(data=b"\x07"), "7"),
    ("int", Int32(data=-12), "-12"),
    ("uint64", UInt64(data=2**64 - 1), "18446744073709551615"),
    ("float", Float32(data=0.1), "0.1"),
    ("string", String(data=" the door is open \n"), "the door is open"),
    ("event", Empty(), "received"),
    ("floats", Float64MultiArray(data=[1.0, 2.5]), "1 2.5"),
    ("many", Float64MultiArray(data=[0.0, 4.0] * 10), "20 values, min 0 mean 2 max 4"),
    ("bytes", ByteMultiArray(data=[b"\x01", b"\x02"]), "1 2"),
    ("uint8s", UInt8MultiArray(data=[1] * 1024), "1024 bytes"),
    ("odometry", odometry(), "x 1.24 y -0.5 m yaw 90 deg in odom, forward 0.5 m/s, turn 12 deg/s"),
    ("pose", pose(1.0, 2.0, 180.0), "x 1 y 2 m yaw 180 deg"),
    ("pose_cov", pose_with_covariance(), "x 3 y 4 z -1.5 m yaw -45 deg in map"),
    ("poses", PoseArray(poses=[pose(1.0, 2.0)] * 3), "3 poses, first x 1 y 2 m yaw 0 deg"),
    ("twist", twist(0.25, -1.0), "forward 0.25 m/s, turn -57 deg/s"),
    ("stop", Twist(), "no motion"),
    ("twist_stamped", TwistStamped(header=header("base"), twist=twist(1.0, 0.0)),
     "forward 1 m/s in base"),
    ("accel", Accel(linear=Vector3(x=1.0)),
     "linear x 1 y 0 z 0 m/s2, angular x 0 y 0 z 0 rad/s2"),
    ("wrench", Wrench(force=Vector3(z=9.5)), "force x 0 y 0 z 9.5 N, torque x 0 y 0 z 0 N m"),
    ("transform", transform(), "map to odom x 1 y 2 m yaw 3 deg"),
    ("imu", imu(),
     "yaw 19 deg, turn rate x 0 y 0 z 0.52 rad/s, acceleration x 0.1 y 0 z 9.8 m/s2 in imu_link"),
    ("imu_part", imu(orientation_known=False),
     "turn rate x 0 y 0 z 0.52 rad/s, acceleration x 0.1 y 0 z 9.8 m/s2 in imu_link"),
    ("fix", fix(), "fix, lat 40.071752 lon -111.600213 deg alt 1556.4 m in gps"),
    ("no_fix", NavSatFix(), "unknown fix, lat 0 lon 0 deg alt 0 m"),
    ("battery", BatteryState(percentage=0.87, voltage=12.31, current=-1.2,
                             temperature=math.nan, power_supply_status=2),
     "charge 87 % 12.31 V -1.2 A discharging"),
    ("battery_percent", BatteryState(percentage=87.0, voltage=12.0, current=math.nan),
     "charge 87 % 12 V"),
    ("scan", scan(), "nearest front clear left clear back 2.5 right 1.25 m in laser"),
    ("range", Range(range=0.523, min_range=0.02, max_range=4.0), "0.52 m"),
    ("range_far", Range(range=math.inf, min_range=0.02, max_range=4.0), "clear up to 4 m"),
    ("range_near", Range(range=-math.inf, min_range=0.02, max_range=4.0), "closer than 0.02 m"),
    ("joints", JointState(name=["a", "b"], position=[0.5, -1.25], velocity=[0.0, 0.3]),
     "position a 0.5, b -1.25 (0.3/s) rad or m"),
    ("joints_short", JointState(name=["a", "b"], velocity=[0.5]),
     "velocity a 0.5, b nan rad/s or m/s"),
    ("path", path(), "3 poses, 11 m long, ends x 3 y 10 m in map"),
    ("grid", grid(), "20 x 5 cells of 0.05 m, 50 % known, 10 % occupied in map"),
    ("pressure", pressure(), "101.33 kPa in baro"),
    ("temperature", Temperature(temperature=21.456), "21.5 C"),
    ("humidity", RelativeHumidity(relative_humidity=0.65), "65 % humidity"),
    ("light", Illuminance(illuminance=500.0), "500 lux"),
    ("magnet", MagneticField(magnetic_field=Vector3(x=2.21e-5, z=-4.5e-5)), "x 22.1 y 0 z -45 uT"),
    ("joy", Joy(axes=[0.0, 0.5], buttons=[0, 1, 0, 1]), "axes 0 0.5, pressed 1 3"),
    ("diagnostics", diagnostics(), "ERROR motor: too hot; STALE gps; WARN wheel: slips; 2 OK"),
    ("log", Log(level=40, name="nav", msg="no path"), "ERROR nav: no path"),
    ("log_info", Log(level=20, name="nav", msg="a plan"), ""),
    ("image", Image(header=header("cam", 12), width=640, height=480, encoding="rgb8"),
     "640 x 480 pixels rgb8, stamp 12 s in cam"),
    ("jpeg", CompressedImage(header=header("cam", 12), format="jpeg", data=[0] * 99),
     "99 bytes jpeg, stamp 12 s in cam"),
    ("cloud", PointCloud2(header=header("lidar", 12), width=1024, height=16),
     "16384 points, stamp 12 s in lidar"),
]  # fmt: skip


def type_of(message: object) -> str:
    package, kind = type(message).__module__.split(".")[:2]
    return f"{package}/{kind}/{type(message).__name__}"


def recorded(message: object) -> object:
    """The same message as a bag gives it."""
    return CATALOGUE.decoder(type_of(message))(serialize_message(message))


@pytest.mark.parametrize(
    ("message", "expected"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_a_message_has_its_golden_text_live_and_from_a_bag(message, expected):
    assert default_text(type_of(message), message) == expected
    assert default_text(type_of(message), recorded(message)) == expected


def transforms(count: int) -> object:
    """A TFMessage as a bag gives it; its package has no Python classes everywhere."""
    item = recorded(transform())
    types = get_typestore(Stores.ROS2_JAZZY).types
    return types["tf2_msgs/msg/TFMessage"](transforms=[item] * count)


def test_transforms_are_named_pairs_and_bounded():
    one = "map to odom x 1 y 2 m yaw 3 deg"
    kind = "tf2_msgs/msg/TFMessage"
    assert default_text(kind, transforms(2)) == f"{one}; {one}"
    assert default_text(kind, transforms(100)).endswith(f"{one}, +92 more")
    assert default_text(kind, transforms(0)) == "no transforms"


@pytest.mark.parametrize("chosen", [True, False])
def test_another_policys_decision_is_told_with_its_reason(chosen):
    message = SimpleNamespace(outcome=1 if chosen else 2, OK=1, action="stop", reason="too late")
    template = compile_template(default_source("csr_policy/msg/ActionDecision"))
    text = "".join(template._compiled.generate({"msg": message}))
    assert text == ("chose stop" if chosen else "no choice, stop: too late")


def importable() -> list[str]:
    names = []
    for name in DEFAULT_TEMPLATES:
        package, _, leaf = name.split("/")
        try:
            if hasattr(importlib.import_module(f"{package}.msg"), leaf):
                names.append(name)
        except ImportError:
            continue
    return names


def blank(name: str) -> object:
    package, _, leaf = name.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), leaf)()


def fill(message: object, number: float, text: str, length: int) -> object:
    """Set every float and text, and every unbounded sequence to `length` elements."""
    for name, kind in message.get_fields_and_field_types().items():
        value = getattr(message, name)
        if kind in ("float", "double"):
            setattr(message, name, number)
        elif kind == "string":
            setattr(message, name, text)
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
            value[:] = number
        elif isinstance(value, array.array):
            item = number if value.typecode in "fd" else 1
            setattr(message, name, array.array(value.typecode, [item]) * length)
        elif isinstance(value, list):
            setattr(message, name, [element(kind, number, text)] * length)
        elif hasattr(value, "get_fields_and_field_types"):
            fill(value, number, text, length)
    return message


def element(kind: str, number: float, text: str) -> object:
    inner = kind.removeprefix("sequence<").rstrip(">")
    if inner in ("string", "octet", "boolean"):
        return {"string": text, "octet": b"\x01", "boolean": True}[inner]
    package, leaf = inner.split("/")
    return fill(blank(f"{package}/msg/{leaf}"), number, text, 2)


@pytest.mark.parametrize("name", importable())
def test_an_empty_message_has_a_text_or_is_none(name):
    text = default_text(name, blank(name), LIMIT)
    assert text == default_text(name, recorded(blank(name)), LIMIT)
    assert bool(text) != (name in ("rcl_interfaces/msg/Log", "csr_policy/msg/StateChunk"))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", importable())
def test_numbers_that_are_none_are_named_and_never_raise(name, number):
    message = fill(blank(name), number, "text", 3)
    text = default_text(name, message, LIMIT)
    assert text == default_text(name, recorded(message), LIMIT)
    if "Odometry" in name or "Float" in name or "Pose" in name or "Imu" in name:
        assert "nan" in text or "inf" in text


@pytest.mark.parametrize("name", importable())
def test_a_huge_message_has_a_short_text(name):
    message = fill(blank(name), 1.5, "x" * 100_000, 20_000)
    text = default_text(name, message, LIMIT)
    assert len(text) <= LIMIT
    assert "\n" not in text
