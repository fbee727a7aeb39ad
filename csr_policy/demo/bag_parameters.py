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
"""Writes the parameters that replay.launch.py adds for a recording.

    bag_parameters BAG OUTPUT [--params-file FILE] [--rate RATE]

Where the user's parameter file names no observations, they are made from the recording's topics,
as `csr-policy demo --bag` does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from csr_policy.demo.bag_player import playable_topics
from csr_policy.demo.configuration import observation_parameters, plan_of
from csr_policy.observation.autoconfig import DEFAULT_TOKENS_PER_S
from csr_policy.observation.bag_storage import BagError
from csr_policy.observation.bags import BagReader
from csr_policy.parameters import SOURCES, SettingsError, load_parameter_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the parameter file.

    Returns:
        Exit status: 0, or 1 with one line on standard error where the recording or the
        parameter file cannot be read.
    """
    parser = argparse.ArgumentParser(prog="bag_parameters", description=__doc__)
    parser.add_argument("bag", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--params-file", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=1.0)
    options = parser.parse_args(arguments)
    try:
        given = load_parameter_file(options.params_file)
        made = {} if given.get(SOURCES) else _observations(options.bag, options.rate)
    except (BagError, SettingsError) as error:
        print(f"csr_policy: {error}", file=sys.stderr)
        return 1
    document = {"/**": {"ros__parameters": made}}
    options.output.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return 0


def _observations(bag: Path, rate: float) -> dict[str, object]:
    with BagReader(bag) as reader:
        playable = playable_topics(reader)
        plan = plan_of(
            playable.types, reader.rates_hz, rate=rate, tokens_per_s=DEFAULT_TOKENS_PER_S
        )
    for topic, reason in {**playable.refused, **plan.skipped}.items():
        print(f"csr_policy: {topic} is not observed: {reason}", file=sys.stderr)
    if not plan.observations:
        raise BagError(f"{bag}: has no topic to observe; expected messages that ROS 2 knows here")
    print(f"csr_policy: observing {', '.join(plan.observations)}", file=sys.stderr)
    return observation_parameters(plan)


if __name__ == "__main__":
    sys.exit(main())
