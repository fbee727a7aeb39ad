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
"""Appendix F: which engine serves a query, by the version it was built on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RouteCase(StrEnum):
    """The paper's three cases, and what becomes of a query that fits none."""

    CONTINUATION = "continuation"
    """Current version, no reconciliation: the primary."""
    BRIDGING = "bridging"
    """Current version while the next one is prepared: the primary, on the stitched context."""
    STRAGGLER = "straggler"
    """Previous version, whose cache the secondary still holds: the secondary."""
    RESTITCHED = "restitched"
    """An older version, held nowhere any more: rebuilt on the current one."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a query goes.

    Attributes:
        case: Which of the cases it is.
        engine: Index of the engine.
        version: Version it is asked on; the current one where it is restitched.
    """

    case: RouteCase
    engine: int
    version: int


def route(
    query_version: int,
    current_version: int,
    *,
    primary: int,
    secondary: int,
    reconciling: bool,
    secondary_holds: bool,
) -> Route:
    """Choose the route of a query.

    Args:
        query_version: Version the query was built on, `k_t`.
        current_version: `k`.
        primary: Index of the primary engine.
        secondary: Index of the secondary engine.
        reconciling: A warm-up or catch-up is under way.
        secondary_holds: The secondary's cache of the query's version is intact and ready.
    """
    assert query_version <= current_version, "a query cannot come from the future"
    if query_version == current_version:
        case = RouteCase.BRIDGING if reconciling else RouteCase.CONTINUATION
        return Route(case, primary, current_version)
    if query_version == current_version - 1 and secondary_holds:
        return Route(RouteCase.STRAGGLER, secondary, query_version)
    return Route(RouteCase.RESTITCHED, primary, current_version)
