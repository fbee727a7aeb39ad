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
"""Is the prefix as stable as the design says? Measured on real engines.

Chunks stream in, decisions are made, evictions swap the engines; for every
decision the engine's own count of cached tokens is held against what must be
cached: the full blocks of what was static at the previous decision on that
engine, or, right after a swap, of what catch-up had warmed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from csr_policy.decision import Decision
from csr_policy.policy import Policy
from csr_policy.reconciliation.state import full_blocks
from csr_policy.settings import Settings

_WORDS = [
    *("door", "wall", "key", "box", "ball", "north", "south"),
    *("left", "right", "ahead", "battery", "odom", "pose", "goal"),
]


class BenchError(RuntimeError):
    """A bench cannot be run: one line."""


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One decision.

    Attributes:
        version: Sequence version.
        engine: Engine asked.
        prompt_tokens: Length of the prompt.
        static_tokens: Length of its static state.
        must_be_cached: Tokens that had to come from the cache.
        cached_tokens: Tokens that did.
        after_swap: First decision on a version.
        swap_missing_tokens: For the first decision on a version, static tokens that were left
            to compute at the swap; else 0.
        ttft_s: Time to first token, seconds.
    """

    version: int
    engine: str
    prompt_tokens: int
    static_tokens: int
    must_be_cached: int
    cached_tokens: int
    after_swap: bool
    swap_missing_tokens: int
    ttft_s: float


@dataclass(frozen=True, slots=True)
class PrefixReport:
    """The whole run."""

    decisions: int
    violations: int
    swaps: int
    block_tokens: int
    n_catchup_tokens: int
    rows: tuple[PrefixRow, ...]

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


class _Expected:
    """What must be cached, counted here and not taken from the policy's own book-keeping."""

    def __init__(self, block_tokens: int) -> None:
        self._block = block_tokens
        self._static: dict[tuple[str, int], int] = {}

    def before(self, decision: Decision, warmed: int) -> int:
        """Tokens that must be cached; `warmed` counts for the first decision on a version."""
        known = self._static.get((decision.engine, decision.version), warmed)
        return full_blocks(known, decision.prompt_tokens, self._block)

    def after(self, decision: Decision, static_tokens: int) -> None:
        self._static[(decision.engine, decision.version)] = static_tokens


def run_prefix_bench(
    settings: Settings,
    *,
    decisions: int,
    chunk_tokens: int,
    seed: int,
    progress: Callable[[int, int], None],
    ready_timeout_s: float = 300.0,
) -> PrefixReport:
    """Stream chunks, decide, and compare cached tokens with what must be cached.

    Args:
        settings: Engines, thresholds; the decision rate paces the run.
        decisions: How many to make.
        chunk_tokens: Least length of a chunk, in tokens.
        seed: Of the chunks' text.
        progress: Called with (made, swaps) after each decision.
        ready_timeout_s: Longest wait for the engines.

    Raises:
        BenchError: The engines are not ready, or a decision failed.
        PolicyError: The settings cannot be used.
    """
    policy = Policy(settings)
    try:
        policy.start()
        if not policy.wait_ready(ready_timeout_s):
            raise BenchError(f"engines not ready: {policy.status().degraded}")
        return _run(policy, settings, decisions, chunk_tokens, random.Random(seed), progress)
    finally:
        policy.close()


def _run(
    policy: Policy,
    settings: Settings,
    decisions: int,
    chunk_tokens: int,
    rng: random.Random,
    progress: Callable[[int, int], None],
) -> PrefixReport:
    block = policy.block_tokens()
    expected = _Expected(block)
    rows: list[PrefixRow] = []
    period_s = 1.0 / settings.decision.rate_hz
    due_s = time.monotonic()
    while len(rows) < decisions:
        policy.append(_text(policy, rng, chunk_tokens), "stream")
        query = policy.freeze()
        warmed = policy.held_tokens(query.state.version)
        decision = policy.dispatch(query, deadline_s=settings.engine.warm_up_timeout_s)
        if not decision.ok:
            raise BenchError(f"decision {len(rows)}: {decision.outcome.name}: {decision.reason}")
        static = decision.prompt_tokens - len(query.dynamic)
        must = expected.before(decision, warmed)
        expected.after(decision, static)
        status = policy.status()
        rows.append(
            PrefixRow(
                decision.version,
                decision.engine,
                decision.prompt_tokens,
                static,
                must,
                decision.cached_tokens,
                decision.after_swap,
                status.swap_missing_tokens if decision.after_swap else 0,
                decision.ttft_s,
            )
        )
        progress(len(rows), status.swaps)
        due_s += period_s
        time.sleep(max(0.0, due_s - time.monotonic()))
    return PrefixReport(
        decisions=len(rows),
        violations=sum(_violates(row, settings) for row in rows),
        swaps=policy.status().swaps,
        block_tokens=block,
        n_catchup_tokens=settings.reconciliation.n_catchup_tokens,
        rows=tuple(rows),
    )


def _violates(row: PrefixRow, settings: Settings) -> bool:
    """Less was cached than must be, or a swap left more than `N_catchup` to compute."""
    short = row.cached_tokens < row.must_be_cached
    return short or row.swap_missing_tokens > settings.reconciliation.n_catchup_tokens


def _text(policy: Policy, rng: random.Random, chunk_tokens: int) -> str:
    words: list[str] = []
    while len(policy.assembler.tokenizer.encode_text(" ".join(words))) < chunk_tokens:
        words += [rng.choice(_WORDS) for _ in range(8)]
    return " ".join(words)
