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
"""What the machine was and did during a run, so that its peaks are not taken for ours. Linux."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_STEAL = 7
_FIELDS = 8
"""user, nice, system, idle, iowait, irq, softirq, steal of /proc/stat's first line."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Clock ticks since boot: all of them, and those that the host took away."""

    total: int
    stolen: int


def read_processor_times() -> ProcessorTimes | None:
    """Read the ticks; None where the system does not tell."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    ticks = [int(field) for field in line.split()[1 : _FIELDS + 1]]
    return ProcessorTimes(sum(ticks), ticks[_STEAL]) if len(ticks) == _FIELDS else None


def facts_of_machine(before: ProcessorTimes | None) -> Mapping[str, object]:
    """Processors, and the share of their time since `before` that the host took away."""
    after = read_processor_times()
    stolen = None
    if before is not None and after is not None and after.total > before.total:
        stolen = round((after.stolen - before.stolen) / (after.total - before.total), 4)
    return {
        "machine": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "processor_time_stolen_share": stolen,
    }
