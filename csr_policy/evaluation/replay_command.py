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
"""`csr-policy replay BAG --offline`: settings from a file and the bag, engines, files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csr_policy.evaluation.offline import OfflineReplay, ReplayError
from csr_policy.evaluation.replay_report import summary_of, write_replay
from csr_policy.observation.autoconfig import plan_observations
from csr_policy.observation.bags import BagReader
from csr_policy.parameters import flat_parameters, load_parameter_file, settings_from_parameters
from csr_policy.serving.access import engine_access
from csr_policy.serving.models import demo_model
from csr_policy.settings import Settings

_DEFAULTS: dict[str, object] = {
    "decision.rate_hz": 1.0,
    "reconciliation.tau_mem_tokens": 2400,
    "ingest.max_chunk_tokens": 256,
}
"""For a bag without a parameter file, on the demo model's 8,192 positions."""

MakeProgress = Callable[[int, str], AbstractContextManager[Callable[[float], None]]]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What the user asked for; empty `engines` starts an own pair with the demo model."""

    bag: Path
    params: Path | None
    output: Path
    engines: tuple[str, ...]
    tokenizer: Path | None
    max_decisions: int


def replay_offline(
    request: ReplayRequest, say: Callable[[str], None], progress: MakeProgress
) -> dict[str, Any]:
    """Replay a bag in lock-step and write its files.

    Returns:
        The summary that was written.

    Raises:
        BagError: The bag cannot be read.
        SettingsError: The parameter file is wrong.
        ReplayError: Nothing in the bag is observed, or the engines failed.
    """
    values: dict[str, object] = load_parameter_file(request.params) if request.params else {}
    with BagReader(request.bag) as bag:
        sources, skipped = _observations(bag, values)
        for topic, reason in skipped.items():
            say(f"not observed: {topic}: {reason}")
        with engine_access(
            request.engines or _urls(values),
            request.tokenizer or _tokenizer(values),
            demo_model(progress=say),
            say,
        ) as access:
            base = {**_DEFAULTS, **values} if not request.params else values
            settings = settings_from_parameters(
                {
                    **base,
                    **sources,
                    "engines": list(access.urls),
                    "tokenizer": str(access.model_folder),
                    "engine.cache_salt": uuid.uuid4().hex,
                }
            )
            return _replay(request, bag, settings, skipped, say, progress)


def _replay(
    request: ReplayRequest,
    bag: BagReader,
    settings: Settings,
    skipped: dict[str, str],
    say: Callable[[str], None],
    progress: MakeProgress,
) -> dict[str, Any]:
    topics = {
        "/" + observation.topic.lstrip("/"): name
        for name, observation in settings.observations.items()
    }
    present = {topic: name for topic, name in topics.items() if topic in _names(bag)}
    if not present:
        raise ReplayError(f"{request.bag}: has none of the observed topics {sorted(topics)}")
    replay = OfflineReplay(settings, warn=say)
    made = []
    total = max(1, int(bag.duration_s * settings.decision.rate_hz))
    try:
        with progress(min(total, request.max_decisions or total), "decisions") as advance:
            for decision in replay.run(bag, present, max_decisions=request.max_decisions):
                made.append(decision)
                advance(len(made))
        summary = summary_of(request.bag, bag, replay, made, replay.policy.status(), skipped)
    finally:
        replay.close()
    write_replay(request.output, made, summary)
    return summary


def _observations(
    bag: BagReader, values: dict[str, object]
) -> tuple[dict[str, object], dict[str, str]]:
    """Parameters of the observations: the file's own, or made of the bag's topics."""
    if values.get("observation_sources"):
        return {}, {}
    usable = [(topic.name, topic.type) for topic in bag.topics if topic.messages]
    plan = plan_observations(usable, bag.rates_hz)
    made = flat_parameters(Settings(observations=dict(plan.observations)))
    own = ("observation_sources", "observations.")
    return {k: v for k, v in made.items() if k.startswith(own)}, dict(plan.skipped)


def _names(bag: BagReader) -> set[str]:
    return {topic.name for topic in bag.topics}


def _urls(values: dict[str, object]) -> tuple[str, ...]:
    named = values.get("engines", ())
    return tuple(str(url) for url in named) if isinstance(named, list | tuple) else ()


def _tokenizer(values: dict[str, object]) -> Path | None:
    folder = values.get("tokenizer")
    return Path(str(folder)).expanduser() if folder else None
