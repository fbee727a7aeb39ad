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
"""Everything a user can set: one source of names, units, ranges and defaults.

The models below are the only definition of a setting. The ROS parameter table
(`parameters.py`), the parameter reference in the documentation and the
validation of a parameter file are all derived from them. A nested field is
addressed by its dotted path, `decision.rate_hz`; a unit is part of the name.
All models are frozen: threads share one object and never see it change.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]*\Z")
MAX_ACTIONS = 128
"""vLLM scores at most this many label tokens in one request."""


class Placement(StrEnum):
    """Where an observation's text goes."""

    CHUNK = "chunk"
    SUFFIX = "suffix"


class QosPreset(StrEnum):
    """Quality of service of an observation's subscription."""

    SENSOR_DATA = "sensor_data"
    RELIABLE = "reliable"
    LATCHED = "latched"
    MATCH = "match"


class ActionCoding(StrEnum):
    """How an action is written as one token."""

    AUTO = "auto"
    WORDS = "words"
    LETTERS = "letters"


class RememberActions(StrEnum):
    """Which of the robot's own actions become chunks."""

    ALL = "all"
    CHANGES = "changes"
    NONE = "none"


class EndpointChoice(StrEnum):
    """Which of vLLM's token-in endpoints is asked."""

    AUTO = "auto"
    GENERATE = "generate"
    COMPLETIONS = "completions"


class JournalSync(StrEnum):
    """What an acknowledged chunk survives: a killed process, or power loss."""

    NORMAL = "normal"
    FULL = "full"


class EvictionPolicyName(StrEnum):
    """How the start of the next sequence version is chosen."""

    OLDEST_FRACTION = "oldest_fraction"
    OLDEST_TOKENS = "oldest_tokens"


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class EngineSettings(_Frozen):
    """How the engines are asked."""

    model: str = ""
    """Model name as the engines serve it; empty asks the engine for the one it has."""
    endpoint: EndpointChoice = EndpointChoice.AUTO
    """Token-in endpoint: auto takes /inference/v1/generate where the engine offers it."""
    api_key_env: str = "CSR_POLICY_API_KEY"
    """Environment variable that holds the engines' API key; an unset one means no key."""
    api_key_file: str = ""
    """File that holds the engines' API key; takes precedence over the environment."""
    tls_ca_file: str = ""
    """Certificate authority for https engines; empty uses the system's."""
    cache_salt: str = ""
    """Isolates this robot's cached tokens from others on the same engines; empty shares."""
    connect_timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    """Longest time to open a connection."""
    warm_up_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Longest time for one warm-up or probe request."""
    probe_period_s: Annotated[float, Field(ge=0.1, le=60)] = 1.0
    """Time between two attempts to reach an engine that is not ready."""
    max_prompt_tokens: Annotated[int, Field(ge=0)] = 0
    """Upper limit of the prompt; 0 takes the engine's own limit (max_model_len - 1)."""


class PrefixSettings(_Frozen):
    """X_pre: the immutable head of every prompt (section III-D)."""

    robot_profile: str = "You control a mobile robot."
    """What the robot is: body, sensors, limits."""
    behaviour: str = "Act safely and make steady progress on the task."
    """How the robot should behave."""
    examples: tuple[str, ...] = ()
    """Worked examples, one text each."""


class DecisionSettings(_Frozen):
    """The control loop."""

    rate_hz: Annotated[float, Field(ge=0.05, le=50)] = 2.0
    """Decisions per second that are started."""
    deadline_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    """tau_max: when a started tick must have its decision; 0 means one period."""
    fallback_action: str = ""
    """Action published when there is no decision in time; empty publishes none."""
    min_probability: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A decision whose best action is less probable becomes a fallback; 0 is off."""
    min_label_mass: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A decision whose labels hold less of the model's probability is a fallback; 0 is off."""
    max_state_age_s: Annotated[float, Field(ge=0)] = 0.0
    """A decision on a log whose newest chunk is older becomes a fallback; 0 is off."""
    remember_actions: RememberActions = RememberActions.CHANGES
    """Which published actions become chunks: all, changes or none."""


class EvictionSettings(_Frozen):
    """What an eviction drops and what it carries over."""

    policy: EvictionPolicyName = EvictionPolicyName.OLDEST_FRACTION
    """oldest_fraction drops a share of the chunks, oldest_tokens a number of tokens."""
    fraction: Annotated[float, Field(ge=0.1, le=0.95)] = 0.5
    """Share of the chunks that oldest_fraction drops (the paper's one half)."""
    tokens: Annotated[int, Field(ge=1)] = 4096
    """Tokens that oldest_tokens drops, rounded up to whole chunks."""
    head_max_tokens: Annotated[int, Field(ge=0)] = 512
    """Bound of the carried head; a pinned chunk beyond it is refused."""


class ReconciliationSettings(_Frozen):
    """Algorithm 1: warm-up, catch-up, swap."""

    tau_mem_tokens: Annotated[int, Field(ge=64)] = 6000
    """tau_mem: static tokens at which an eviction starts."""
    n_catchup_tokens: Annotated[int, Field(ge=1)] = 256
    """N_catchup: tokens the secondary may lack when the engines swap."""
    warm_up_step_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens a warm-up request adds; 0 warms up in one request."""
    warm_up_pause_s: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Pause between two warm-up requests."""
    backoff_initial_s: Annotated[float, Field(gt=0, le=60)] = 0.5
    """First wait after a failed reconciliation; doubles up to backoff_max_s."""
    backoff_max_s: Annotated[float, Field(gt=0, le=600)] = 15.0
    """Longest wait between two attempts at a reconciliation."""


class JournalSettings(_Frozen):
    """The chunk log on disk."""

    path: str = ""
    """SQLite file of the journal; empty keeps it in memory, and nothing can be resumed."""
    sync: JournalSync = JournalSync.NORMAL
    """normal survives a killed process, full survives power loss."""
    resume: bool = False
    """Start from the chunks in the journal; otherwise an existing file is refused."""


class IngestSettings(_Frozen):
    """Bounds on what comes in."""

    queue_messages: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Messages waiting to become chunks; beyond it they are dropped and counted."""
    max_chunk_tokens: Annotated[int, Field(ge=8)] = 512
    """Longest chunk; a longer text is cut with a visible mark."""
    max_text_characters: Annotated[int, Field(ge=64)] = 65_536
    """Longest text taken from a message before it is tokenised; the rest is cut and marked."""


class AskSettings(_Frozen):
    """Questions beside the control loop: the services decide and ask."""

    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Longest reply to ask."""
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Longest time for one question."""
    workers: Annotated[int, Field(ge=1, le=32)] = 4
    """Questions served at once; one more is refused."""


class ObservationSettings(_Frozen):
    """One observed topic: `observations.<name>.*`."""

    topic: str
    """Topic, relative to the node's namespace."""
    type: str
    """Message type, as package/msg/Name."""
    template: str = ""
    """Jinja2 template over `msg`; empty takes the default for the type."""
    placement: Placement = Placement.CHUNK
    """chunk appends each message to the log; suffix keeps only the newest, uncached."""
    min_interval_s: Annotated[float, Field(ge=0)] = 0.0
    """Messages closer together than this are skipped (ROS time)."""
    on_change: bool = False
    """Skip a message whose text equals the last one taken."""
    max_age_s: Annotated[float, Field(ge=0)] = 0.0
    """Suffix text older than this is left out; 0 keeps it for ever."""
    max_tokens: Annotated[int, Field(ge=0)] = 0
    """Longest chunk of this source; 0 takes ingest.max_chunk_tokens."""
    keep: bool = False
    """Pin the source's chunks: an eviction carries them over in its head."""
    qos: QosPreset = QosPreset.MATCH
    """Quality of service of the subscription."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if not self.topic.strip():
            raise ValueError("topic: is empty; expected a topic name")
        if self.type.count("/") not in (1, 2) or not all(self.type.split("/")):
            raise ValueError(f"type: is {self.type!r}; expected package/msg/Name")
        return self


class Settings(_Frozen):
    """All settings of one policy."""

    engines: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = (
        "http://127.0.0.1:8001",
        "http://127.0.0.1:8002",
    )
    """Base URLs of the vLLM servers, primary first; one alone is degraded."""
    tokenizer: str = ""
    """Folder with the served model's tokenizer.json and chat template."""
    actions: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_ACTIONS)] = (
        "wait",
        "go",
    )
    """The actions to choose from, in the order they are listed to the model."""
    action_descriptions: tuple[str, ...] = ()
    """What each action does, in the order of `actions`; empty gives none."""
    action_coding: ActionCoding = ActionCoding.AUTO
    """letters lists A, B, C, ...; words asks for the action itself; auto takes words if it can."""
    task: str = "Choose the robot's next action."
    """X_task at start; the topic ~/task replaces it."""
    engine: EngineSettings = EngineSettings()
    prefix: PrefixSettings = PrefixSettings()
    decision: DecisionSettings = DecisionSettings()
    eviction: EvictionSettings = EvictionSettings()
    reconciliation: ReconciliationSettings = ReconciliationSettings()
    journal: JournalSettings = JournalSettings()
    ingest: IngestSettings = IngestSettings()
    ask: AskSettings = AskSettings()
    observations: dict[str, ObservationSettings] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        for number, url in enumerate(self.engines):
            if not re.match(r"https?://[^/\s]+", url):
                raise ValueError(f"engines[{number}]: is {url!r}; expected http://host:port")
        if len(set(self.actions)) != len(self.actions):
            twice = next(a for a in self.actions if self.actions.count(a) > 1)
            raise ValueError(f"actions: {twice!r} stands twice; expected distinct labels")
        for action in self.actions:
            if action != action.strip() or not action or "\n" in action:
                raise ValueError(f"actions: {action!r}; expected text without surrounding space")
        if self.action_descriptions and len(self.action_descriptions) != len(self.actions):
            raise ValueError(
                f"action_descriptions: has {len(self.action_descriptions)} entries; "
                f"expected none or {len(self.actions)}, one for each of actions"
            )
        fallback = self.decision.fallback_action
        if fallback and fallback not in self.actions:
            raise ValueError(
                f"decision.fallback_action: is {fallback!r}; expected one of {list(self.actions)}"
            )
        if self.deadline_s > 1.0 / self.decision.rate_hz + 1e-9:
            raise ValueError(
                f"decision.deadline_s: is {self.decision.deadline_s}; expected at most "
                f"the period, {1.0 / self.decision.rate_hz:.3f}"
            )
        for name in self.observations:
            if not NAME_PATTERN.match(name):
                raise ValueError(
                    f"observation_sources: {name!r}; expected lower case letters, digits, _"
                )
        return self

    @property
    def deadline_s(self) -> float:
        """tau_max in seconds, with the default of one period applied."""
        return self.decision.deadline_s or 1.0 / self.decision.rate_hz

    @property
    def single_engine(self) -> bool:
        """True where one engine plays both roles (degraded)."""
        return len(self.engines) == 1


def api_key(engine: EngineSettings) -> str | None:
    """Read the engines' API key from its file or environment variable.

    Returns:
        The key without surrounding space, or None where none is configured.

    Raises:
        ValueError: The configured file cannot be read; one line that names it.
    """
    if engine.api_key_file:
        try:
            return Path(engine.api_key_file).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(
                f"engine.api_key_file: cannot read {engine.api_key_file!r} ({error.strerror})"
            ) from error
    return os.environ.get(engine.api_key_env, "").strip() or None
