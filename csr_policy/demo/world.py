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
"""MiniGrid as a robot's world: motion, odometry, battery, beacon, and what is in view as text.

The robot's base drives in the four directions of the compass; a move is carried out with
MiniGrid's own actions, turning and going forward. Knows nothing of ROS. One object belongs
to one thread.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import gymnasium
import minigrid  # noqa: F401  (registers the environments)
from minigrid.core.actions import Actions
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

MOVES = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}
"""The robot's actions, and the cells they lead to in MiniGrid's columns and rows."""

_HEADINGS = ("E", "S", "W", "N")
"""MiniGrid's agent_dir, from 0."""
_BACKGROUND = ("unseen", "empty", "floor", "wall", "agent")
_FULL_V = 25.2
_EMPTY_V = 18.0
_MOTION_SHARE = 0.004
_IDLE_SHARE_PER_S = 0.0002


class WorldError(ValueError):
    """The environment cannot be used or the action has no meaning: one line."""


@dataclass(frozen=True, slots=True)
class Pose:
    """Where the robot is: metres east and north of the room's corner, radians from east."""

    x_m: float
    y_m: float
    heading_rad: float


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What a move did.

    Attributes:
        text: One line for the robot's log.
        moved_m: Distance driven, metres.
        goal_reached: True where this move reached the goal; a new room begins.
    """

    text: str
    moved_m: float
    goal_reached: bool


class Battery:
    """A battery that drains with time and motion and is changed at every goal."""

    def __init__(self) -> None:
        self.share = 1.0

    def spend(self, *, moves: int = 0, seconds: float = 0.0) -> None:
        """Take the charge of some moves and some time."""
        used = moves * _MOTION_SHARE + seconds * _IDLE_SHARE_PER_S
        self.share = max(0.0, self.share - used)

    @property
    def voltage_v(self) -> float:
        """Terminal voltage, linear in the charge."""
        return _EMPTY_V + (_FULL_V - _EMPTY_V) * self.share


class World:
    """A robot in a sequence of MiniGrid rooms; reaching the goal opens the next room."""

    def __init__(self, environment: str, *, seed: int = 0, cell_m: float = 0.5) -> None:
        """Enter the first room.

        Args:
            environment: A registered MiniGrid environment with a goal square.
            seed: Seed of the first room; the next room takes the next number.
            cell_m: Edge of a grid cell in metres.

        Raises:
            WorldError: There is no such environment, or it has no goal to reach.
        """
        try:
            # The limit of steps is for training; a robot goes on.
            self._env: Any = gymnasium.make(environment, max_steps=10**9).unwrapped
        except (gymnasium.error.Error, TypeError) as error:
            detail = " ".join(str(error).split())
            raise WorldError(f"environment: {environment!r} cannot be made ({detail})") from None
        self._seed = seed
        self._cell_m = cell_m
        self._observation: dict[str, Any] = {}
        self._way: dict[tuple[int, int], int] = {}
        self.environment = environment
        self.battery = Battery()
        self.goals = 0
        self.moves = 0
        self.blocked = 0
        self._enter_room()
        if not self._way:
            raise WorldError(f"environment: {environment!r} has no goal square to drive to")

    @property
    def pose(self) -> Pose:
        """Where the robot is in its room."""
        column, row = self._cell
        heading = -int(self._env.agent_dir) * math.pi / 2
        return Pose(
            column * self._cell_m,
            (self._env.height - 1 - row) * self._cell_m,
            math.remainder(heading, math.tau),
        )

    @property
    def goal_distance(self) -> int:
        """Moves to the goal on the shortest way."""
        return self._way[self._cell]

    def way(self) -> str:
        """The move that begins a shortest way to the goal."""
        here = self._way[self._cell]
        for name in MOVES:
            if self._way.get(self._neighbour(name), here) < here:
                return name
        raise AssertionError("a shortest way has a next cell")

    def beacon(self) -> str:
        """What the goal's beacon tells, in one line."""
        return f"the goal is {self.way()}. Way to it: {self.way()}"

    def view(self) -> str:
        """What the robot's sensors see around it, in one line."""
        free = [name for name in MOVES if self._is_free(self._neighbour(name))]
        things = self._things()
        return f"free {' '.join(free) or 'nowhere'}; in view {', '.join(things) or 'nothing'}"

    def move(self, action: str) -> MoveResult:
        """Drive one cell.

        Raises:
            WorldError: The action is none of `MOVES`.
        """
        if action not in MOVES:
            raise WorldError(f"action: {action!r}; expected one of {', '.join(MOVES)}")
        self.moves += 1
        if self.battery.share <= 0.0:
            return MoveResult("battery empty, stands still", 0.0, False)
        self.battery.spend(moves=1)
        free = self._is_free(self._neighbour(action))
        while _HEADINGS[int(self._env.agent_dir)] != action:
            self._observation, *_ = self._env.step(Actions.right)
        if not free:
            self.blocked += 1
            # Without its name: a small model reads a name that is repeated as advice.
            return MoveResult("a wall is in the way", 0.0, False)
        self._observation, reward, _, _, _ = self._env.step(Actions.forward)
        if float(reward) > 0:
            self.goals += 1
            self.battery = Battery()
            self._enter_room()
            return MoveResult(f"reached goal {self.goals}", self._cell_m, True)
        return MoveResult(f"drove {action}", self._cell_m, False)

    def close(self) -> None:
        """Release the environment."""
        self._env.close()

    @property
    def _cell(self) -> tuple[int, int]:
        column, row = self._env.agent_pos
        return int(column), int(row)

    def _neighbour(self, direction: str) -> tuple[int, int]:
        column, row = self._cell
        step = MOVES[direction]
        return column + step[0], row + step[1]

    def _is_free(self, cell: tuple[int, int]) -> bool:
        content = self._env.grid.get(*cell)
        # Lava can be entered, once.
        return content is None or (content.can_overlap() and content.type != "lava")

    def _enter_room(self) -> None:
        self._observation, _ = self._env.reset(seed=self._seed + self.goals)
        self._way = self._ways_to_goal()

    def _ways_to_goal(self) -> dict[tuple[int, int], int]:
        """Moves to the goal from every cell that leads there (breadth first from the goal)."""
        size = (int(self._env.width), int(self._env.height))
        cells = [(column, row) for column in range(size[0]) for row in range(size[1])]
        goals = [c for c in cells if getattr(self._env.grid.get(*c), "type", "") == "goal"]
        ways = dict.fromkeys(goals, 0)
        waiting = deque(goals)
        while waiting:
            column, row = waiting.popleft()
            for right, down in MOVES.values():
                cell = column + right, row + down
                if cell not in ways and self._is_free(cell):
                    ways[cell] = ways[column, row] + 1
                    waiting.append(cell)
        return ways if self._cell in ways else {}

    def _things(self) -> list[str]:
        """What stands out in MiniGrid's partial view, nearest first, by compass."""
        image = self._observation["image"]
        middle, last = image.shape[0] // 2, image.shape[1] - 1
        found = []
        for across in range(image.shape[0]):
            for along in range(image.shape[1]):
                kind = IDX_TO_OBJECT[int(image[across][along][0])]
                ahead, right = last - along, across - middle
                if kind not in _BACKGROUND and (ahead, right) != (0, 0):
                    colour = IDX_TO_COLOR[int(image[across][along][1])]
                    found.append((ahead + abs(right), f"{colour} {kind}", ahead, right))
        return [f"{name} {self._place(ahead, right)}" for _, name, ahead, right in sorted(found)]

    def _place(self, ahead: int, right: int) -> str:
        """Cells ahead and to the right, said by compass."""
        heading = int(self._env.agent_dir)
        parts = [(ahead, heading), (right, heading + 1)]
        return " ".join(
            f"{abs(cells)} {_HEADINGS[(direction + (2 if cells < 0 else 0)) % 4]}"
            for cells, direction in parts
            if cells
        )


def goals_at_random(environment: str, *, seed: int, moves: int, trials: int = 5) -> float:
    """Goals that a robot reaches on average which chooses its moves at random.

    Args:
        environment: As for `World`.
        seed: As for `World`; also of the choices.
        moves: Moves of one trial.
        trials: How often to try.
    """
    goals = 0
    for trial in range(trials):
        world = World(environment, seed=seed)
        choice = random.Random(seed + trial)
        for _ in range(moves):
            world.move(choice.choice(list(MOVES)))
        goals += world.goals
        world.close()
    return goals / trials
