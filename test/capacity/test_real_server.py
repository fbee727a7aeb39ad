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
"""A real vLLM server: its own counts, the simulator on the same requests, the estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.own_server import own_server
from csr_policy.capacity.schedules import Setting, enough_warm_up
from csr_policy.capacity.server_replay import Server
from csr_policy.capacity.trace import Trace, trace_from_turns
from csr_policy.capacity.validate import run_point
from csr_policy.capacity.vllm_manager import vllm_available
from csr_policy.capacity.watch import fetch_metrics, parse_cache, parse_counters, window
from csr_policy.capacity.workload import Boundary

pytestmark = pytest.mark.skipif(not vllm_available(), reason="needs vllm")

BLOCKS, BLOCK_TOKENS = 70, 32


def say(_line: str) -> None:
    pass


@pytest.fixture(scope="module")
def conversations() -> Trace:
    rng = np.random.default_rng(6)
    return trace_from_turns(
        [
            [(int(rng.integers(5, 60)), int(rng.integers(2, 40))) for _ in range(turns)]
            for turns in rng.integers(2, 6, 300)
        ]
    )


@pytest.fixture(scope="module")
def server(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with own_server(
        blocks=BLOCKS,
        block_tokens=BLOCK_TOKENS,
        longest_tokens=1000,
        model=tiny_folder,
        core=None,
        log=tmp_path_factory.mktemp("server") / "log",
        say=say,
    ) as running:
        yield running


def test_predictions_on_a_real_server(server: Server, conversations: Trace) -> None:
    setting = Setting(4.0, 2.4, BLOCKS, BLOCK_TOKENS, measured=110)
    setting = replace(setting, warm_up=enough_warm_up(conversations, setting))
    before = parse_counters(fetch_metrics(server.url, server.api_key))
    point = run_point(server, conversations, setting)
    after = parse_counters(fetch_metrics(server.url, server.api_key))
    print(point)
    assert point.failed == 0
    assert point.turns > 200
    assert 0.1 < point.actual < 0.6
    assert point.simulated == pytest.approx(point.actual, abs=0.005)
    assert point.prior.size_corrected == pytest.approx(
        point.actual, abs=0.02 + 2 * point.standard_error
    )
    # The engine's own counters tell the same, over all requests.
    whole = window(before, after, 1.0)
    assert whole.hit_ratio == pytest.approx(point.token_hit_ratio, abs=0.05)


def test_replies_written_by_the_server_are_reused(server: Server, conversations: Trace) -> None:
    setting = Setting(
        3.0,
        1.5,
        BLOCKS,
        BLOCK_TOKENS,
        measured=30,
        warm_up=5,
        boundary=Boundary.COLOCATED,
        text_seed=1,
    )
    point = run_point(server, conversations, setting)
    print(point)
    assert point.failed == 0
    assert point.turns > 50
    # Replies take seconds here and their blocks one by one, not at their end as simulated.
    assert point.simulated == pytest.approx(point.actual, abs=0.02)


def test_the_server_has_the_blocks_asked_for(server: Server) -> None:
    cache = parse_cache(fetch_metrics(server.url, server.api_key))
    assert cache is not None
    assert (cache.blocks, cache.block_tokens) == (BLOCKS, BLOCK_TOKENS)


def test_a_pool_that_holds_no_conversation_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(CapacityError, match="expected the longest conversation to fit, 32"),
        (
            own_server(
                blocks=3,
                block_tokens=32,
                longest_tokens=1000,
                model=None,
                core=None,
                log=tmp_path / "log",
                say=say,
            )
        ),
    ):
        pass


def test_a_server_out_of_reach_is_one_line(conversations: Trace) -> None:
    setting = Setting(200.0, 0.05, BLOCKS, BLOCK_TOKENS, measured=30, warm_up=1)
    with pytest.raises(CapacityError, match="engine: "):
        run_point(Server("http://127.0.0.1:1", timeout_s=1.0), conversations, setting)
