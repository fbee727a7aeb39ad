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
"""Algorithm 1: LRU over whole conversations."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from csr_policy.capacity.arrays import BoolArray, IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.simulator.result import HitRatio, measure
from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.workload import Workload


def lru_hits(conversation: IntArray, size: IntArray, blocks: int) -> BoolArray:
    """Whether each turn finds its conversation's content.

    Args:
        conversation: Who is served, in order.
        size: R_j, the content after that turn.
        blocks: N.
    """
    resident: OrderedDict[int, int] = OrderedDict()
    take, evict = resident.pop, resident.popitem
    used = 0
    hits = bytearray(conversation.size)
    for index, (owner, grown) in enumerate(zip(conversation.tolist(), size.tolist(), strict=True)):
        held = take(owner, 0)
        if held:
            hits[index] = 1
        resident[owner] = grown
        used += grown - held
        while used > blocks:
            used -= evict(last=False)[1]
    return np.frombuffer(hits, dtype=np.uint8).astype(np.bool_)


def simulate_whole_content(timeline: Timeline, workload: Workload, blocks: int) -> HitRatio:
    """Hit ratio of Algorithm 1 (equation (12)): a hit reuses the whole R_{j-1}.

    Raises:
        CapacityError: N is not positive, or no turn lies in the window.
    """
    if blocks < 1:
        raise CapacityError(f"blocks: is {blocks}; expected 1 or more")
    size = workload.size[timeline.turn]
    hits = lru_hits(timeline.conversation, size, blocks)
    before = np.where(timeline.first, 0, workload.size[timeline.turn - 1])
    return measure(timeline, workload, np.where(hits, before, 0).astype(np.int64))
