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
"""What every text has in common: short numbers, one line, valid UTF-8, a bounded length.

Each digit is a token for the usual tokenizers, and each token costs prefill time, so
numbers are rounded to what a decision can use. Pure; any thread may call it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ABANDON_FACTOR = 4
_SCIENTIFIC_FROM = 1e9
_SCIENTIFIC_FROM_EVEN_IF_ROUNDED = 1e15
_ZERO_BELOW = 1e-9


def number(value: object, decimals: int | None = None) -> str:
    """A number in as few characters as it needs; `nan` and `inf` as such.

    Args:
        value: Boolean, integer or float.
        decimals: Digits after the point; None keeps three significant digits of a small
            number and fewer decimals the larger it is.

    Raises:
        ValueError: The value is not a number.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, float):
        raise ValueError(f"is {str(value)[:40]!r}; expected a number")
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    magnitude = abs(value)
    if decimals is None:
        if magnitude < _ZERO_BELOW:
            return "0"
        if magnitude < 1e-4 or magnitude >= _SCIENTIFIC_FROM:
            return _scientific(value)
        decimals = _decimals_for(magnitude)
    elif magnitude >= _SCIENTIFIC_FROM_EVEN_IF_ROUNDED:
        return _scientific(value)
    text = f"{value:.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _decimals_for(magnitude: float) -> int:
    if magnitude < 1.0:
        return 2 - math.floor(math.log10(magnitude))
    return 3 if magnitude < 100 else 2 if magnitude < 10_000 else 1


def _scientific(value: float) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def one_line(text: str) -> str:
    """Runs of white space become one space, what cannot be shown becomes U+FFFD.

    A chunk ends at its newline, so a text must not bring its own: it could pass for
    another chunk. Lone surrogates and control characters are not valid input to a
    tokenizer or to SQLite.
    """
    return _UNPRINTABLE.sub("\ufffd", " ".join(text.split()))


def cut(text: str, max_characters: int) -> str:
    """Shorten a text to `max_characters`, with a mark that tells how much is missing."""
    return text if len(text) <= max_characters else _marked(text, len(text), "", max_characters)


def join_bounded(pieces: Iterable[str], max_characters: int) -> str:
    """Join pieces into one text of at most `max_characters`, marked where it is cut.

    A template may yield without end; it is abandoned once the text is far too long, and
    the mark then says `N+`.
    """
    kept: list[str] = []
    length = 0
    more = ""
    for piece in pieces:
        if length > _ABANDON_FACTOR * max_characters:
            more = "+"
            break
        if length <= max_characters:
            kept.append(piece)
        length += len(piece)
    text = "".join(kept)
    return text if length <= max_characters else _marked(text, length, more, max_characters)


def _marked(text: str, length: int, more: str, max_characters: int) -> str:
    room = max_characters - len(f"…[cut {length}{more} characters]")
    kept = text[: max(0, room)]
    return f"{kept}…[cut {length - len(kept)}{more} characters]"
