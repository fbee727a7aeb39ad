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
"""What the modules without ROS log, in the node's log."""

from __future__ import annotations

import logging

from rclpy.impl.rcutils_logger import RcutilsLogger


class LogBridge(logging.Handler):
    """Hands records of Python's logging to a ROS logger; any thread may log."""

    def __init__(self, logger: RcutilsLogger) -> None:
        """Write to `logger`."""
        super().__init__(logging.INFO)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record at its severity."""
        text = self.format(record)
        # rclpy ties a severity to the line that calls, so each has a line of its own.
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)


def install(logger: RcutilsLogger) -> None:
    """Send everything below `csr_policy` to the ROS log, and nowhere else."""
    package = logging.getLogger("csr_policy")
    package.handlers = [LogBridge(logger)]
    package.setLevel(logging.INFO)
    package.propagate = False
