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
"""The node as its own process, and a second ROS process: the test.

Everything here waits on conditions. The processes talk in a domain of their own, on
this machine alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 90))

try:
    import rclpy
    from csr_policy.msg import ActionDecision, PolicyStatus
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from std_msgs.msg import String

    from csr_policy.node.qos import latched_profile

except ImportError as error:
    warnings.warn(f"test/ros is left out: {error}; run make build", stacklevel=1)
    collect_ignore_glob = ["test_*.py"]

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60.0
"""How long a condition may take; nothing is measured with it."""
POLL_S = 0.05


@dataclass
class NodeProcess:
    """The node under test."""

    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def lines(self, *needles: str) -> list[str]:
        """Lines of its log that hold every needle."""
        return [line for line in self.log.splitlines() if all(n in line for n in needles)]

    def wait(self) -> int:
        """Wait until it ends by itself."""
        return self.process.wait(PATIENCE_S)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the exit status."""
        self.process.send_signal(number)
        return self.wait()


@dataclass
class Robot:
    """The other process: subscribes to all the node says and calls its services."""

    node: Any
    executor: Any
    prefix: str
    decisions: list[ActionDecision] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    statuses: list[PolicyStatus] = field(default_factory=list)
    diagnostics: list[DiagnosticArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        subscribe = self.node.create_subscription
        subscribe(ActionDecision, f"{self.prefix}/decision", self.decisions.append, 100)
        subscribe(String, f"{self.prefix}/action", lambda m: self.actions.append(m.data), 100)
        subscribe(PolicyStatus, f"{self.prefix}/status", self.statuses.append, latched_profile())
        subscribe(DiagnosticArray, "/diagnostics", self.diagnostics.append, 10)

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Spin until the condition holds and return what it returned."""
        until = time.monotonic() + PATIENCE_S
        while not (result := condition()):
            assert time.monotonic() < until, f"never came: {what}"
            self.executor.spin_once(timeout_sec=POLL_S)
        return result

    def publisher(self, message_class: type, topic: str, qos: Any = 10) -> Any:
        """A publisher that the node has found."""
        publisher = self.node.create_publisher(message_class, topic, qos)
        self.wait_for(lambda: publisher.get_subscription_count(), f"a subscriber of {topic}")
        return publisher

    def start_call(self, service_class: type, name: str, **request: Any) -> Any:
        """Call a service of the node; returns the future."""
        client = self.node.create_client(service_class, f"{self.prefix}/{name}")
        self.wait_for(client.service_is_ready, f"service {name}")
        return client.call_async(service_class.Request(**request))

    def call(self, service_class: type, name: str, **request: Any) -> Any:
        """Call a service of the node and wait for its response."""
        future = self.start_call(service_class, name, **request)
        self.wait_for(future.done, f"response of {name}")
        return future.result()

    def wait_for_status(self, condition: Callable[[PolicyStatus], Any], what: str) -> PolicyStatus:
        """The first status from now on that meets the condition."""
        start = max(0, len(self.statuses) - 1)

        def found() -> PolicyStatus | None:
            return next((s for s in self.statuses[start:] if condition(s)), None)

        return self.wait_for(found, what)

    def wait_for_decision(
        self, condition: Callable[[ActionDecision], Any], what: str
    ) -> ActionDecision:
        """The first decision from now on that meets the condition."""
        start = len(self.decisions)

        def found() -> ActionDecision | None:
            return next((d for d in self.decisions[start:] if condition(d)), None)

        return self.wait_for(found, what)

    def wait_until_ready(self) -> None:
        """Wait for a decision that the model made."""
        self.wait_for_decision(lambda d: d.outcome == ActionDecision.OK, "an OK decision")


@pytest.fixture(scope="session")
def graph() -> Iterator[Context]:
    context = Context()
    rclpy.init(context=context)
    yield context
    context.try_shutdown()


@pytest.fixture
def make_robot(graph: Context) -> Iterator[Callable[..., Robot]]:
    executor = SingleThreadedExecutor(context=graph)
    nodes = []

    def make(prefix: str = "/csr_policy") -> Robot:
        node = rclpy.create_node(f"robot_{len(nodes)}", context=graph)
        nodes.append(node)
        executor.add_node(node)
        return Robot(node, executor, prefix)

    yield make
    for node in nodes:
        executor.remove_node(node)
        node.destroy_node()
    executor.shutdown()


@pytest.fixture
def robot(make_robot: Callable[..., Robot]) -> Robot:
    return make_robot()


@pytest.fixture
def run_node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Starts nodes with parameters, ends them all."""
    running: list[NodeProcess] = []

    def run(
        parameters: dict[str, object],
        *arguments: str,
        environment: dict[str, str] | None = None,
        python: tuple[str, ...] = ("-m", "csr_policy.node.main"),
    ) -> NodeProcess:
        number = len(running)
        file = tmp_path / f"parameters_{number}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
        log_path = tmp_path / f"node_{number}.log"
        argv = [sys.executable, *python, "--ros-args"]
        argv += ["--params-file", str(file), *arguments]
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | (environment or {}),
            )
        running.append(NodeProcess(process, log_path))
        return running[-1]

    yield run
    for node in running:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()


@pytest.fixture
def unreachable(tiny_folder: Path) -> dict[str, object]:
    """Parameters of a node whose engines refuse: all but the engines works."""
    return {
        # Port 9 (discard) is never served on a test machine, so it refuses at once.
        "engines": ["http://127.0.0.1:9", "http://127.0.0.1:9"],
        "tokenizer": str(tiny_folder),
        "actions": ["stop", "go", "turn left"],
        "decision.fallback_action": "stop",
        "decision.rate_hz": 10.0,
    }
