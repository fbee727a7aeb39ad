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
"""The policy's node as a process of its own, which does not outlive the demo.

Owned by one thread. Run as a module it is that process: it asks the kernel to be told when the
demo is gone, and becomes the node.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

_PR_SET_PDEATHSIG = 1
_OWNER_VARIABLE = "CSR_POLICY_DEMO_PID"
_INTERRUPT_S = 15.0
_TERMINATE_S = 3.0
_LOG_LINE = re.compile(r"\[(?:ERROR|FATAL)\] \[[^\]]*\] \[[^\]]*\]: (.*)")


class _QuotingDumper(yaml.SafeDumper):
    """Quotes every string: to ROS a bare N is a boolean, which PyYAML does not know."""


_QuotingDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


class NodeError(RuntimeError):
    """The node could not be started or has ended: one line."""


class NodeProcess:
    """The node, from its start to its end."""

    def __init__(self, parameters: Mapping[str, object], folder: Path) -> None:
        """Write the parameters down; nothing runs before `start`.

        Args:
            parameters: Dotted name to value.
            folder: Takes the parameter file and the log.
        """
        self.log_path = folder / "node.log"
        self._file = folder / "node_parameters.yaml"
        self._file.write_text(parameter_file_text(parameters), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: Mapping[str, str]) -> None:
        """Start it.

        Args:
            environment: Variables beside this process's own; secrets travel here.
        """
        argv = [sys.executable, "-m", "csr_policy.demo.node_process", "--ros-args"]
        argv += ["--params-file", str(self._file)]
        own = {_OWNER_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | own | dict(environment),
                # Ctrl-C in a terminal goes to the demo, which stops its node in order.
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise if it has ended.

        Raises:
            NodeError: It has; with the last error of its log.
        """
        status = self._process.poll() if self._process else None
        if status is not None:
            reason = self.last_error() or "no error in its log"
            raise NodeError(f"the node ended with status {status}: {reason} ({self.log_path})")

    def last_error(self) -> str:
        """The newest error of its log; empty for none."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        errors = _LOG_LINE.findall(text)
        if errors:
            return str(errors[-1])
        refusals = [line for line in text.splitlines() if line.startswith("csr_policy: ")]
        return refusals[-1] if refusals else ""

    def stop(self) -> bool:
        """End it: interrupt, terminate, kill; bounded.

        Returns:
            True where it ended at the interrupt, or was not running.
        """
        if self._process is None or self._process.poll() is not None:
            return True
        for number, patience_s in (
            (signal.SIGINT, _INTERRUPT_S),
            (signal.SIGTERM, _TERMINATE_S),
            (signal.SIGKILL, _TERMINATE_S),
        ):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                self._process.send_signal(number)
                self._process.wait(patience_s)
                return number == signal.SIGINT
        return False


def parameter_file_text(parameters: Mapping[str, object]) -> str:
    """Parameters as the text of a ROS 2 parameter file."""
    document = {"/**": {"ros__parameters": dict(parameters)}}
    return yaml.dump(document, Dumper=_QuotingDumper, sort_keys=False, width=4096)


def main() -> None:
    """Become the node; end in order when the demo is gone."""
    owner = os.environ.pop(_OWNER_VARIABLE, "")
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if owner and os.getppid() != int(owner):
        return  # it was gone before the request above
    runpy.run_module("csr_policy.node.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
