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
"""What the policy is shown: the robot in its world, or a recording.

A scene lives in the demo's graph. It is made, started and stopped by the thread of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import rclpy

from csr_policy.demo.bag_player import BagPlayer, Playable, playable_topics
from csr_policy.demo.configuration import plan_of
from csr_policy.demo.graph import RosGraph
from csr_policy.demo.robot import RobotNode
from csr_policy.demo.world import World, goals_at_random
from csr_policy.observation.bags import BagError, BagReader
from csr_policy.settings import ObservationSettings

_BASELINE_MOVES = 400
_TOKENS_PER_S = 25.0
"""Budget of a recording's observations: a decision a second computes them on one core."""


class Scene(Protocol):
    """A source of observations."""

    def observation_at(self, stamp_ns: int) -> str:
        """The newest observation at a time, in one line."""
        ...

    @property
    def finished(self) -> bool:
        """True where nothing more will come."""
        ...

    @property
    def failure(self) -> str:
        """Why it cannot go on; empty where it can."""
        ...

    @property
    def progress(self) -> str:
        """How far it is, for the status line."""
        ...

    def enter(self, graph: RosGraph) -> None:
        """Make its nodes."""
        ...

    @property
    def awaited(self) -> str:
        """What is not there yet once the policy is ready, in a few words; empty for nothing."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self) -> None:
        """End what it started; bounded, and may be called more than once."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What the summary says about it."""
        ...


class RobotScene:
    """The closed loop: the robot drives where the policy says."""

    failure = ""
    finished = False
    awaited = ""

    def __init__(self, environment: str, seed: int, policy: str) -> None:
        """Build the world.

        Raises:
            WorldError: The environment does not exist or has no goal.
        """
        self._seed = seed
        self._policy = policy
        self.world = World(environment, seed=seed)
        self._robot: RobotNode | None = None

    def observation_at(self, stamp_ns: int) -> str:
        """What the robot saw."""
        return self._robot.observation_at(stamp_ns) if self._robot else ""

    @property
    def progress(self) -> str:
        """Goals so far."""
        return f"{self.world.goals} goals reached in {self.world.moves} moves"

    def enter(self, graph: RosGraph) -> None:
        """Put the robot into the graph."""
        self._robot = RobotNode(self.world, policy=self._policy, context=graph.context)
        graph.add(self._robot)

    def start(self) -> None:
        """The robot waits for its first action by itself."""

    def stop(self) -> None:
        """The robot stands still without actions."""

    def facts(self) -> Mapping[str, object]:
        """Goals reached, and how many a random choice reaches in as many moves."""
        world = self.world
        chance = goals_at_random(world.environment, seed=self._seed, moves=_BASELINE_MOVES)
        return {
            "source": f"MiniGrid environment {world.environment}",
            "goals_reached": world.goals,
            "actions_done": world.moves,
            "actions_blocked": world.blocked,
            "goals_at_random": round(chance * world.moves / _BASELINE_MOVES, 2),
        }


class BagScene:
    """A recording, played once from start to end."""

    def __init__(self, bag: Path, *, rate: float | None, min_duration_s: float) -> None:
        """Open the recording.

        Args:
            bag: rosbag2 folder or file.
            rate: Seconds of the recording in one second; None takes 1, or less where the
                recording is shorter than `min_duration_s`.
            min_duration_s: How long it should take.

        Raises:
            BagError: There is no such recording, or nothing of it can be played.
        """
        self.reader = BagReader(bag)
        self.playable: Playable = playable_topics(self.reader)
        self._bag = bag
        self._player: BagPlayer | None = None
        self._observations: Mapping[str, ObservationSettings] = {}
        slower = max(self.reader.duration_s, 0.1) / min_duration_s
        self.rate = rate or float(f"{min(1.0, slower):.2g}")
        self.slowed = not rate and self.rate < 1.0
        if not self.playable.types:
            self.reader.close()
            reasons = "; ".join(f"{t}: {r}" for t, r in self.playable.refused.items())
            raise BagError(f"{bag}: no topic can be played ({reasons or 'no messages'})")
        self.plan = plan_of(
            self.playable.types, self.reader.rates_hz, rate=self.rate, tokens_per_s=_TOKENS_PER_S
        )

    @property
    def duration_s(self) -> float:
        """How long it takes to play."""
        return self.reader.duration_s / self.rate

    def observe(self, observations: Mapping[str, ObservationSettings]) -> None:
        """Set what the policy observes of it, before `enter`."""
        self._observations = observations

    def observation_at(self, stamp_ns: int) -> str:
        """The newest observed message."""
        return self._player.observation_at(stamp_ns) if self._player else ""

    @property
    def finished(self) -> bool:
        """True once the last message is out."""
        return self._player is not None and self._player.finished

    @property
    def failure(self) -> str:
        """Why playing ended early."""
        return self._player.failure if self._player else ""

    @property
    def progress(self) -> str:
        """Position in the recording."""
        if self._player is None:
            return ""
        return (
            f"{self._player.position_s:.1f} of {self.reader.duration_s:.1f} s of the recording, "
            f"{self._player.published} messages"
        )

    def enter(self, graph: RosGraph) -> None:
        """Make the publishers."""
        node = rclpy.create_node("bag_player", context=graph.context)
        graph.add(node)
        self._player = BagPlayer(
            node, self.reader, self.playable, self._observations, rate=self.rate
        )

    @property
    def awaited(self) -> str:
        """Observed topics that nobody subscribes yet: their messages would be lost."""
        missing = self._player.without_subscriber if self._player else ()
        return f"a subscriber of {', '.join(missing)}" if missing else ""

    def start(self) -> None:
        """Begin to play."""
        assert self._player is not None, "enter comes first"
        self._player.start()

    def stop(self) -> None:
        """Stop playing and close the recording."""
        if self._player is not None:
            self._player.stop()
        self.reader.close()

    def facts(self) -> Mapping[str, object]:
        """The recording, and what of it was not played."""
        return {
            "source": f"recording {self._bag.name}",
            "play_rate": self.rate,
            "messages_played": self._player.published if self._player else 0,
            "messages_in_recording": self.reader.message_count,
            "topics_not_played": dict(
                self._player.refused if self._player else self.playable.refused
            ),
        }
