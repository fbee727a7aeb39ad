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
"""Process groups by identity: who is alive, and a bounded stop.

A server is the leader of its own process group, and its engine process stays in that group. A
process is identified by its id and its start time, so that a recycled id is never signalled: the
embedded engines are stopped by another run of the command than the one that started them.
Linux only, by way of /proc.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05
_KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for good: ids are reused, ids with a start time are not.

    Attributes:
        pid: Process id.
        started_ticks: Start time in clock ticks since boot.
    """

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    group: int
    started_ticks: int


def identify(pid: int) -> ProcessId | None:
    """Identify a process that is running; None where there is none."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid, stat.started_ticks)


def alive(process: ProcessId) -> bool:
    """Tell whether the process runs; a dead child that nobody has waited for does not."""
    stat = _stat(process.pid)
    return stat is not None and stat.state != "Z" and stat.started_ticks == process.started_ticks


def group_members(leader: ProcessId) -> tuple[int, ...]:
    """List the ids of what runs in the leader's group, whether or not the leader lives."""
    stat = _stat(leader.pid)
    if stat is not None and stat.started_ticks != leader.started_ticks:
        return ()  # the id belongs to somebody else now, so the group has been empty
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            found = _stat(int(entry.name))
            if found is not None and found.group == leader.pid and found.state != "Z":
                members.append(int(entry.name))
    return tuple(sorted(members))


def stop_group(leader: ProcessId, timeout_s: float) -> bool:
    """End a process group: the leader is asked, then everything is killed.

    Only the leader is asked, so that it can end its children in order.

    Args:
        leader: The group's leader.
        timeout_s: How long the group has to end by itself.

    Returns:
        True where it ended by itself, False where it had to be killed.
    """
    if alive(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader.pid, signal.SIGTERM)
        if _wait_empty(leader, timeout_s):
            return True
    elif not group_members(leader):
        return True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    _wait_empty(leader, _KILL_WAIT_S)
    return False


def _wait_empty(leader: ProcessId, timeout_s: float) -> bool:
    until_s = time.monotonic() + timeout_s
    while group_members(leader):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_POLL_S)
    return True


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], group=int(fields[2]), started_ticks=int(fields[19]))
