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
"""Numbers, cutting and cleaning: what every observation text has in common."""

from __future__ import annotations

import math

import pytest

from csr_policy.observation.text import cut, join_bounded, number, one_line


@pytest.mark.parametrize(
    ("value", "decimals", "expected"),
    [
        (1.2399999, 2, "1.24"),
        (12.30, 2, "12.3"),
        (3.0, 2, "3"),
        (-0.001, 2, "0"),
        (1744320598.37, 1, "1744320598.4"),
        (1e300, 2, "1e300"),
        (0.123456, None, "0.123"),
        (0.0001234, None, "0.000123"),
        (2.346e-5, None, "2.35e-5"),
        (1e-17, None, "0"),
        (123.456, None, "123.46"),
        (123456.789, None, "123456.8"),
        (-1.234e12, None, "-1.23e12"),
        (18446744073709551615, None, "18446744073709551615"),
        (True, None, "true"),
        (math.nan, 2, "nan"),
        (math.inf, None, "inf"),
        (-math.inf, 0, "-inf"),
    ],
)
def test_a_number_takes_as_few_characters_as_it_needs(value, decimals, expected):
    assert number(value, decimals) == expected


def test_a_number_of_another_type_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"is 'abc'; expected a number"):
        number("abc")


def test_a_text_becomes_one_line():
    assert one_line(" a\n b\t\r\n c ") == "a b c"


def test_control_characters_and_lone_surrogates_become_replacement_characters():
    text = one_line("a\x00b\x1bc\x7fd\ud800e\x9ff")
    assert text == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf"
    assert text.encode("utf-8").decode("utf-8") == text


def test_a_text_within_the_limit_is_not_cut():
    assert cut("x" * 100, 100) == "x" * 100


def test_a_cut_text_fits_the_limit_and_tells_what_is_missing():
    text = cut("x" * 1000, 100)
    kept = text.count("x")
    assert len(text) <= 100
    assert text == "x" * kept + f"…[cut {1000 - kept} characters]"


def test_a_long_last_piece_is_counted_exactly():
    text = join_bounded(iter(["head ", "y" * 2_000_000]), 100)
    kept = text.count("y")
    assert text.endswith(f"…[cut {2_000_005 - 5 - kept} characters]")


def test_an_endless_text_is_abandoned_and_marked_so():
    def endless():
        while True:
            yield "word "

    text = join_bounded(endless(), 100)
    assert len(text) <= 100
    assert text.endswith("+ characters]")
