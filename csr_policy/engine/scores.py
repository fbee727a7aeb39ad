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
"""From log-probabilities to an action distribution. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from csr_policy.engine.errors import EngineMismatchError


@dataclass(frozen=True, slots=True)
class Distribution:
    """How the model chooses among the labels.

    Attributes:
        probabilities: Softmax over the labels, in their order; sum 1.
        label_mass: Sum of the labels' probabilities over the whole vocabulary, 0 to 1: low
            where the model would rather say something else.
        best: Position of the most probable label; the first of equals.
    """

    probabilities: tuple[float, ...]
    label_mass: float
    best: int


def distribution(labels: Sequence[int], logprobs: Mapping[int, float]) -> Distribution:
    """Normalise the labels' raw log-probabilities.

    Args:
        labels: Token ids of the action set.
        logprobs: Token id to natural logarithm of its probability, before any mask.

    Raises:
        EngineMismatchError: A label has no score.
    """
    missing = [label for label in labels if label not in logprobs]
    if missing:
        raise EngineMismatchError(
            f"{len(missing)} of {len(labels)} labels came back without a score; "
            "expected a vLLM that knows logprob_token_ids"
        )
    scores = [logprobs[label] for label in labels]
    top = max(scores)
    if top == -math.inf:
        raise EngineMismatchError("all labels came back with probability 0")
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return Distribution(
        probabilities=tuple(weight / total for weight in weights),
        label_mass=min(1.0, math.exp(top) * total),
        best=scores.index(top),
    )
