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
"""The one error a user of this package sees."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CapacityError(ValueError):
    """Wrong input, in one line: what, where, what was expected."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint that names the known word closest to a wrong one."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1)
    return f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(choices)}"
