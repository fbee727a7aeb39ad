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
"""Closed forms of the stochastic conversation model (sections B.2 and B.3).

Geometric turns with continuation probability p, i.i.d. blocks with E[X] = k and
E[Y] = m, exponential gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gaps import Exponential
from csr_policy.capacity.mean_field import characteristic_time_exponential, check_rate
from csr_policy.capacity.tail_law import Displacement
from csr_policy.capacity.workload import Statistics


@dataclass(frozen=True, slots=True)
class ScmResult:
    """The limit in closed form.

    Attributes:
        characteristic_time_s: T_C by the Lambert W function.
        hit_ratio: (A_H / A_R) F(T_C) = p F(T_C).
    """

    characteristic_time_s: float
    hit_ratio: float


def scm_statistics(p: float, k: float, m: float) -> Statistics:
    """A_R = (k + p m) / q^2, A_H = p A_R, E[B] = A_R - A_H, E[M] = 1 / q.

    Raises:
        CapacityError: A number is out of range.
    """
    if not (0 < p < 1 and k > 0 and m >= 0):
        raise CapacityError(
            f"scm: p {p:g}, k {k:g}, m {m:g}; expected p between 0 and 1, k above 0, m from 0"
        )
    q = 1 - p
    a_r = (k + p * m) / q**2
    e_m = 1 / q
    return Statistics(a_r=a_r, a_h_hash=p * a_r - (e_m - 1), e_b=q * a_r, e_m=e_m)


def scm_limit(
    p: float, k: float, m: float, *, gap_mean_s: float, arrival_rate_hz: float, blocks: int
) -> ScmResult:
    """Mean-field limit of the model, every block reusable.

    Raises:
        CapacityError: A number is out of range.
    """
    check_rate(arrival_rate_hz)
    stats = scm_statistics(p, k, m)
    assert stats.a_h is not None
    curve = Displacement(stats.e_b, stats.a_h)
    time_s = characteristic_time_exponential(blocks, curve, gap_mean_s, arrival_rate_hz)
    return ScmResult(time_s, p * float(Exponential(gap_mean_s).cdf(time_s)))
