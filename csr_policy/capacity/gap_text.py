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
"""Gap laws as they are written on the command line.

`exponential:135`, `gamma:shape,mean`, `lognormal:mu,sigma`, `lomax:shape,scale`,
`deterministic:s` or `empirical:FILE`, all in seconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from csr_policy.capacity.arrays import FloatArray
from csr_policy.capacity.errors import CapacityError, nearest
from csr_policy.capacity.gaps import (
    Deterministic,
    Empirical,
    Exponential,
    Gamma,
    GapLaw,
    Lognormal,
    Lomax,
    require_mean,
)


def _numbers(text: str, names: tuple[str, ...], form: str) -> list[float]:
    parts = text.split(",") if text else []
    if len(parts) != len(names):
        raise CapacityError(f"gap: {text!r} has {len(parts)} numbers; expected {form}")
    values = []
    for name, part in zip(names, parts, strict=True):
        try:
            value = float(part)
        except ValueError:
            raise CapacityError(f"gap: {name} is {part!r}; expected {form}") from None
        if not math.isfinite(value) or (name != "mu" and value <= 0):
            raise CapacityError(f"gap: {name} is {part}; expected a positive number in {form}")
        values.append(value)
    return values


def _read_gaps(path: Path) -> FloatArray:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CapacityError(f"gap: cannot read {str(path)!r} ({error.strerror})") from None
    try:
        if text.lstrip().startswith("["):
            return np.asarray(json.loads(text), dtype=np.float64)
        return np.asarray(text.replace(",", " ").split(), dtype=np.float64)
    except (ValueError, TypeError):
        raise CapacityError(
            f"gap: {str(path)!r} is not a list of numbers; expected seconds, one a line"
        ) from None


_FORMS: dict[str, tuple[tuple[str, ...], Callable[..., GapLaw]]] = {
    "exponential": (("mean",), Exponential),
    "gamma": (("shape", "mean"), Gamma),
    "lognormal": (("mu", "sigma"), Lognormal),
    "lomax": (("shape", "scale"), Lomax),
    "deterministic": (("s",), Deterministic),
}


def parse_gap(text: str) -> GapLaw:
    """Read a gap law as written on the command line.

    Raises:
        CapacityError: The name or a number is wrong, the mean is missing or infinite.
    """
    name, _, rest = text.partition(":")
    if name == "empirical":
        if not rest:
            raise CapacityError("gap: 'empirical' names no file; expected empirical:FILE")
        return Empirical.of(_read_gaps(Path(rest)), rest)
    if name not in _FORMS:
        raise CapacityError(f"gap: {name!r} is no law; {nearest(name, [*_FORMS, 'empirical'])}")
    names, build = _FORMS[name]
    law = build(*_numbers(rest, names, f"{name}:{','.join(names)}"))
    require_mean(law)
    return law
