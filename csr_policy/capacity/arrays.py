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
"""Array types and small helpers for ragged data held in flat arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def positions(offsets: IntArray) -> IntArray:
    """Index of each element inside its own row, 0 for the first."""
    counts = np.diff(offsets)
    return np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], counts)


def row_cumsum(values: IntArray | FloatArray, offsets: IntArray) -> FloatArray:
    """Cumulative sum that starts anew in each row."""
    total = np.cumsum(values, dtype=np.float64)
    before = np.concatenate(([0.0], total))[offsets[:-1]]
    return np.asarray(total - np.repeat(before, np.diff(offsets)))


def row_sum(values: IntArray | FloatArray | BoolArray, offsets: IntArray) -> FloatArray:
    """Sum of each row, empty rows included."""
    total = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    result: FloatArray = total[offsets[1:]] - total[offsets[:-1]]
    return result


def gather_rows(offsets: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Offsets and flat indices of the chosen rows, in their order."""
    counts = np.diff(offsets)[rows]
    chosen = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    flat = np.repeat(offsets[rows] - chosen[:-1], counts) + np.arange(chosen[-1], dtype=np.int64)
    return chosen, flat
