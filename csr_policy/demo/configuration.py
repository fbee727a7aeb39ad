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
"""Parameters of the demo's node: a file of `config/`, and what only the run itself knows.

Pure but for reading files.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from csr_policy.demo.world import MOVES
from csr_policy.observation.autoconfig import ObservationPlan, plan_observations
from csr_policy.parameters import (
    SOURCES,
    SettingsError,
    load_parameter_file,
    settings_from_parameters,
)
from csr_policy.settings import Settings

DEMO_FILE = "demo.yaml"
REPLAY_FILE = "demo_bag.yaml"


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """What the node gets.

    Attributes:
        parameters: Dotted name to value.
        settings: The same, validated.
        own_engines: True where the parameters name no engines: the run starts a pair.
    """

    parameters: Mapping[str, object]
    settings: Settings
    own_engines: bool

    def on_engines(self, urls: Sequence[str], tokenizer: Path) -> NodeConfiguration:
        """The same on engines that the run has started."""
        given = dict(self.parameters) | {"engines": list(urls), "tokenizer": str(tokenizer)}
        return NodeConfiguration(given, settings_from_parameters(given), own_engines=False)


def demo_configuration(journal: Path) -> NodeConfiguration:
    """Parameters of the node that drives the demo's robot.

    Raises:
        SettingsError: The demo's file does not suit the node or the robot; one line.
    """
    configuration = _configuration(load_parameter_file(config_file(DEMO_FILE)), journal)
    unknown = set(configuration.settings.actions) - set(MOVES)
    if unknown:
        raise SettingsError(
            f"parameter 'actions': has {sorted(unknown)}; expected moves of the demo's robot, "
            f"{', '.join(MOVES)}"
        )
    return configuration


def replay_configuration(
    params_file: Path | None, plan: ObservationPlan, journal: Path
) -> NodeConfiguration:
    """Parameters of the node that watches a recording.

    Args:
        params_file: The user's; None takes the demo's.
        plan: Observations for the recording, taken where the file names none.
        journal: The journal's file.

    Raises:
        SettingsError: The file does not suit the node; one line.
    """
    given = load_parameter_file(params_file or config_file(REPLAY_FILE))
    if not given.get(SOURCES):
        given |= observation_parameters(plan)
    return _configuration(given, journal)


def plan_of(
    types: Mapping[str, str], rates_hz: Mapping[str, float], *, rate: float, tokens_per_s: float
) -> ObservationPlan:
    """Observations for a recording that is played at a rate."""
    rates = {topic: hz * rate for topic, hz in rates_hz.items()}
    return plan_observations(types.items(), rates, tokens_per_s=tokens_per_s)


def observation_parameters(plan: ObservationPlan) -> dict[str, object]:
    """A plan as flat parameters; what has its default is left out."""
    flat: dict[str, object] = {SOURCES: list(plan.observations)}
    for name, settings in plan.observations.items():
        for field, value in settings.model_dump(mode="json", exclude_defaults=True).items():
            flat[f"observations.{name}.{field}"] = value
    return flat


def config_file(name: str) -> Path:
    """Find a file of `config/`: in the source that this module lies in, else installed.

    Raises:
        SettingsError: It is in none of the places.
    """
    here = Path(__file__).resolve()
    candidates = [
        here.parents[2] / "config" / name,
        *(parent / "share" / "csr_policy" / "config" / name for parent in here.parents),
        Path(sysconfig.get_path("data"), "share", "csr_policy", "config", name),
    ]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise SettingsError(f"{name}: is not among the installed files; expected config/{name}")
    return found


def _configuration(given: dict[str, object], journal: Path) -> NodeConfiguration:
    own_engines = "engines" not in given
    if not own_engines and not given.get("tokenizer"):
        raise SettingsError(
            "parameter 'tokenizer': is missing; expected the model's folder, "
            "since the file names engines"
        )
    parameters = {"journal.path": str(journal)} | given
    return NodeConfiguration(parameters, settings_from_parameters(parameters), own_engines)
