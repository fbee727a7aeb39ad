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
"""Timelines that tests write by hand."""

from __future__ import annotations

import numpy as np

from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.workload import Workload


def one_after_another(workload: Workload) -> Timeline:
    """All turns of all conversations, a second apart, everything measured."""
    count = workload.turns
    owner = np.repeat(np.arange(workload.conversations), workload.turn_counts)
    first = np.zeros(count, dtype=np.bool_)
    first[workload.offsets[:-1]] = True
    times = np.arange(count, dtype=np.float64)
    return Timeline(
        conversation=owner,
        group=np.zeros(count, dtype=np.int64),
        turn=np.arange(count, dtype=np.int64),
        first=first,
        time_s=times,
        finish_s=times,
        counted=np.ones(count, dtype=np.bool_),
        window_s=(0.0, float(count)),
    )
