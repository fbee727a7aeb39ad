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
"""Reading a cost model: four numbers, a fitted model, or measurements to fit."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from csr_policy.capacity.errors import CapacityError
from csr_policy.cost_model import CostModel, fit

_NAMES = ("t0_s", "per_token_s", "per_new_token_s", "per_pair_s")
_FORM = "t0,t1,a,kappa in seconds, or a file"


def read_cost(text: str) -> CostModel:
    """Read `t0,t1,a,kappa`, a JSON model, or measurements.

    A file holds the four coefficients by name, or `rows` of a latency bench (`static`,
    `dynamic`, `mean_s`, `cached_tokens`), or is a CSV with `prompt_tokens`,
    `cached_tokens`, `seconds`; the latter two are fitted.

    Raises:
        CapacityError: It is none of these, or a number is out of range.
    """
    parts = text.split(",")
    if len(parts) == len(_NAMES):
        try:
            return _checked([float(part) for part in parts])
        except ValueError:
            pass
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CapacityError(f"cost: {text!r}: {error.strerror}; expected {_FORM}") from None
    if path.suffix.lower() == ".csv":
        return _fitted(list(csv.DictReader(content.splitlines())), text)
    try:
        record = json.loads(content)
    except json.JSONDecodeError as error:
        raise CapacityError(f"cost: {text!r} is no JSON ({error.msg})") from None
    if isinstance(record, Mapping) and all(name in record for name in _NAMES):
        return _checked([float(record[name]) for name in _NAMES])
    rows = record.get("rows") if isinstance(record, Mapping) else record
    if not isinstance(rows, Sequence) or not rows:
        raise CapacityError(f"cost: {text!r} has neither coefficients nor rows; expected {_FORM}")
    return _fitted(rows, text)


def _checked(values: list[float]) -> CostModel:
    if not all(math.isfinite(value) and value >= 0 for value in values) or sum(values) <= 0:
        raise CapacityError(f"cost: {values}; expected four numbers, 0 or more, not all 0")
    return CostModel(*values)


def _fitted(rows: Sequence[Mapping[str, Any]], source: str) -> CostModel:
    prompt, cached, seconds = [], [], []
    try:
        for row in rows:
            static, dynamic = row.get("static"), row.get("dynamic")
            if "prompt_tokens" in row:
                prompt.append(float(row["prompt_tokens"]))
            elif static is not None and dynamic is not None:
                prompt.append(float(static) + float(dynamic))
            else:
                raise KeyError("prompt_tokens")
            cached.append(float(row["cached_tokens"]))
            seconds.append(float(row["seconds"] if "seconds" in row else row["mean_s"]))
        return fit(prompt, cached, seconds)[0]
    except (KeyError, TypeError) as error:
        raise CapacityError(
            f"cost: {source!r}: a row lacks {error}; expected prompt_tokens, cached_tokens, "
            "seconds"
        ) from None
    except ValueError as error:
        raise CapacityError(f"cost: {source!r}: {error}") from None
