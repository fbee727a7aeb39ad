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
"""From log-probabilities to a distribution."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csr_policy.engine.errors import EngineMismatchError
from csr_policy.engine.scores import distribution
from csr_policy.reconciliation.state import full_blocks


def test_probabilities_are_the_softmax_and_mass_the_sum() -> None:
    scores = distribution((7, 8, 9), {7: math.log(0.1), 8: math.log(0.3), 9: math.log(0.1)})
    assert scores.probabilities == pytest.approx((0.2, 0.6, 0.2))
    assert scores.label_mass == pytest.approx(0.5)
    assert scores.best == 1


@given(st.lists(st.floats(-1000, 0), min_size=1, max_size=128))
def test_probabilities_sum_to_one_however_small(logprobs: list[float]) -> None:
    labels = tuple(range(len(logprobs)))
    scores = distribution(labels, dict(enumerate(logprobs)))
    assert math.fsum(scores.probabilities) == pytest.approx(1.0)
    assert 0 <= scores.label_mass <= 1
    assert logprobs[scores.best] == max(logprobs)


def test_a_missing_label_is_named() -> None:
    with pytest.raises(EngineMismatchError, match="1 of 2 labels came back without a score"):
        distribution((1, 2), {1: -0.5})


def test_labels_that_are_impossible_are_refused() -> None:
    with pytest.raises(EngineMismatchError, match="probability 0"):
        distribution((1,), {1: -math.inf})


@pytest.mark.parametrize(
    ("held", "prompt", "block", "expected"),
    [
        (0, 500, 128, 0),
        (127, 500, 128, 0),
        (128, 500, 128, 128),
        (500, 500, 128, 384),
        (256, 256, 128, 128),  # the last token of a prompt is always computed
        (257, 257, 128, 256),
        (500, 600, 0, 0),
    ],
)
def test_full_blocks(held: int, prompt: int, block: int, expected: int) -> None:
    assert full_blocks(held, prompt, block) == expected
