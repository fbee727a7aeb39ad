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
"""From a distribution to an action, or to a fallback that says why. Pure."""

from __future__ import annotations

from csr_policy.decision import Outcome
from csr_policy.engine.errors import EngineDeadlineError, EngineError
from csr_policy.engine.scores import Distribution
from csr_policy.reconciliation.query import EngineNotReadyError
from csr_policy.settings import DecisionSettings


def judge(scores: Distribution, settings: DecisionSettings) -> tuple[Outcome, str]:
    """Hold a reply against the confidence thresholds.

    Returns:
        OK and nothing, or the fallback's outcome and its reason.
    """
    probability = scores.probabilities[scores.best]
    if probability < settings.min_probability:
        return (
            Outcome.FALLBACK_LOW_CONFIDENCE,
            f"probability {probability:.3f} is below decision.min_probability "
            f"{settings.min_probability:g}",
        )
    if scores.label_mass < settings.min_label_mass:
        return (
            Outcome.FALLBACK_LOW_CONFIDENCE,
            f"label mass {scores.label_mass:.3g} is below decision.min_label_mass "
            f"{settings.min_label_mass:g}",
        )
    return Outcome.OK, ""


def judge_age(newest_stamp_ns: int, now_ns: int, settings: DecisionSettings) -> str:
    """Empty, or why the log is too old to decide on."""
    if not settings.max_state_age_s:
        return ""
    if not newest_stamp_ns:
        return "no chunk yet; decision.max_state_age_s expects a fresh one"
    age_s = (now_ns - newest_stamp_ns) / 1e9
    if age_s <= settings.max_state_age_s:
        return ""
    return (
        f"newest chunk is {age_s:.1f} s old; decision.max_state_age_s is "
        f"{settings.max_state_age_s:g}"
    )


def failure_outcome(error: EngineError) -> Outcome:
    """The outcome that an engine's failure has for the tick."""
    if isinstance(error, EngineDeadlineError):
        return Outcome.FALLBACK_DEADLINE
    if isinstance(error, EngineNotReadyError):
        return Outcome.NOT_READY
    return Outcome.FALLBACK_ENGINE
