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
"""Long arrays in a few words. Pure; any thread may call it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csr_policy.observation.text import cut, number, one_line
from csr_policy.observation.view import ArrayView, numbers

MAX_LISTED_NUMBERS = 12
MAX_LISTED_TEXTS = 8
MAX_TEXT_CHARACTERS = 200


def array_text(values: ArrayView) -> str:
    """A sequence of numbers or texts: listed while it is short, else summarised.

    Numbers become `1440 values, min 0.1 mean 2.2 max 9.9`, bytes `1024 bytes`, truth
    values `3 of 20 true`, texts the first few and how many more there are.
    """
    if not values:
        return "none"
    array = numbers(values)
    if array is None:
        shown = [short(str(text)) for text in islice(values[:MAX_LISTED_TEXTS], MAX_LISTED_TEXTS)]
        return ", ".join(shown) + more(len(values) - len(shown))
    if array.size <= MAX_LISTED_NUMBERS:
        return " ".join(number(value) for value in array.tolist())
    if array.dtype.kind == "b":
        return f"{np.count_nonzero(array)} of {array.size} true"
    if array.dtype == np.uint8:
        return f"{array.size} bytes"
    return f"{array.size} values, {_spread(array)}"


def short(text: str) -> str:
    """A text field inside a longer text: one line, cut at 200 characters."""
    return one_line(cut(text, MAX_TEXT_CHARACTERS))


def more(count: int) -> str:
    """The mark for what is not listed: `, +5 more`; empty for nothing."""
    return f", +{count} more" if count > 0 else ""


def _spread(array: NDArray[Any]) -> str:
    usable = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not usable.size:
        return "none finite"
    with np.errstate(all="ignore"):
        mean = float(np.mean(usable, dtype=np.float64))
    low, high = usable.min().item(), usable.max().item()
    text = f"min {number(low)} mean {number(mean)} max {number(high)}"
    return text + (f", {array.size - usable.size} not finite" if usable.size < array.size else "")
