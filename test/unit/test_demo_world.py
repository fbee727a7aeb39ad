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
"""The demo's world: moves, goals, battery, and what is said about it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

pytest.importorskip("minigrid", reason="MiniGrid is not installed; see requirements/demo.txt")

from csr_policy.demo.world import MOVES, World, WorldError, goals_at_random

ROOMS = "MiniGrid-SimpleCrossingS9N2-v0"


@pytest.fixture
def world() -> Iterator[World]:
    made = World(ROOMS, seed=1)
    yield made
    made.close()


def go_to_goal(world: World) -> int:
    """Follow the beacon; returns the number of moves."""
    moves = world.goal_distance
    for _ in range(moves):
        world.move(world.beacon()[-1])
    return moves


def test_following_the_beacon_reaches_the_goal_on_the_shortest_way(world: World) -> None:
    moves = go_to_goal(world)

    assert (world.goals, world.moves, world.blocked) == (1, moves, 0)


def test_a_reached_goal_opens_another_room_with_a_full_battery(world: World) -> None:
    go_to_goal(world)

    assert world.goal_distance > 0
    assert world.battery.share == 1.0


def test_a_move_changes_the_pose_by_one_cell_in_its_direction(world: World) -> None:
    before = world.pose
    direction = world.beacon()[-1]

    result = world.move(direction)

    east, south = MOVES[direction]
    after = world.pose
    assert result.moved_m == pytest.approx(0.5)
    assert after.x_m - before.x_m == pytest.approx(0.5 * east)
    assert after.y_m - before.y_m == pytest.approx(-0.5 * south)
    assert math.cos(after.heading_rad) == pytest.approx(east, abs=1e-9)
    assert math.sin(after.heading_rad) == pytest.approx(-south, abs=1e-9)


def test_a_wall_blocks_and_is_said(world: World) -> None:
    free = world.view().removeprefix("free ").split(";")[0].split()
    wall = next(direction for direction in MOVES if direction not in free)

    result = world.move(wall)

    assert (result.text, result.moved_m, world.blocked) == ("a wall is in the way", 0.0, 1)


def test_things_in_view_are_placed_by_compass() -> None:
    world = World("MiniGrid-Empty-5x5-v0", seed=0)

    world.move("E")
    world.move("E")

    # The goal is in the south-east corner, two cells straight south of here.
    assert world.beacon() == "the goal is S. Way to it: S"
    world.move("S")
    assert "green goal 1 S" in world.view()


def test_an_empty_battery_stops_the_robot(world: World) -> None:
    world.battery.spend(seconds=1e9)

    result = world.move(world.beacon()[-1])

    assert (result.text, result.moved_m) == ("battery empty, stands still", 0.0)


def test_charge_and_voltage_fall_with_moves_and_time(world: World) -> None:
    full_v = world.battery.voltage_v
    world.move("N")
    after_move = world.battery.share
    world.battery.spend(seconds=60.0)

    assert 1.0 > after_move > world.battery.share
    assert world.battery.voltage_v < full_v


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("MiniGrid-Nowhere-v0", "cannot be made"),
        ("MiniGrid-Fetch-5x5-N2-v0", "no goal square"),
    ],
)
def test_an_environment_that_cannot_be_used_is_one_line(environment: str, words: str) -> None:
    with pytest.raises(WorldError, match=words) as raised:
        World(environment)
    assert "\n" not in str(raised.value)


def test_an_unknown_move_names_the_known_ones(world: World) -> None:
    with pytest.raises(WorldError, match="'up'; expected one of N, E, S, W"):
        world.move("up")


def test_moves_at_random_reach_fewer_goals_than_the_shortest_way_would() -> None:
    moves = 100

    assert goals_at_random("MiniGrid-Empty-5x5-v0", seed=3, moves=moves) < moves / 4
