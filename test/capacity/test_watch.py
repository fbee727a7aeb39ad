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
"""The live check: counters, drift, restarts, engines out of reach."""

from __future__ import annotations

import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.watch import (
    Counters,
    DriftDetector,
    Window,
    fetch_metrics,
    parse_cache,
    parse_counters,
    report_markdown,
    watch,
    window,
)

METRICS = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 500.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 1e+02
vllm:request_success_total{finished_reason="stop"} 7.0
vllm:request_success_total{finished_reason="length"} 3.0
vllm:cache_config_info{block_size="32",note="a \\"b\\"",num_gpu_blocks="401"} 1.0
vllm:kv_block_idle_before_evict_seconds_sum 90.0
vllm:kv_block_idle_before_evict_seconds_count 3.0
"""


def seen(ratio: float, *, queries: float = 1000.0, restarted: bool = False) -> Window:
    return Window(10.0, queries, ratio, 1.0, math.nan, restarted)


def test_counters_are_summed_over_ranks() -> None:
    counters = parse_counters(METRICS)
    assert counters == Counters(1500.0, 500.0, 10.0, 90.0, 3.0)


def test_the_engine_tells_its_blocks() -> None:
    cache = parse_cache(METRICS)
    assert cache is not None
    assert (cache.blocks, cache.block_tokens) == (400, 32)
    assert parse_cache("vllm:x 1\n") is None


def test_an_engine_without_prefix_caching_is_named() -> None:
    with pytest.raises(CapacityError, match="expected vLLM with prefix caching"):
        parse_counters("process_cpu_seconds_total 3\n")


def test_a_window_is_the_difference_of_two_readings() -> None:
    before, after = Counters(100, 40, 3, 10, 1), Counters(300, 100, 13, 70, 3)
    result = window(before, after, 5.0)
    assert result.hit_ratio == pytest.approx(0.3)
    assert result.request_rate_hz == pytest.approx(2.0)
    assert result.idle_s == pytest.approx(30.0)


def test_counters_that_go_backwards_are_a_restart() -> None:
    assert window(Counters(100, 40, 3, 0, 0), Counters(10, 0, 1, 0, 0), 5.0).restarted


def test_noise_raises_no_alarm_and_drift_does() -> None:
    rng = np.random.default_rng(0)
    detector = DriftDetector(0.03)
    for _ in range(50):
        assert not detector.add(seen(0.4 + 0.03 * rng.standard_normal()), 0.4).alarm
    states = [detector.add(seen(0.3 + 0.01 * rng.standard_normal()), 0.4) for _ in range(6)]
    assert states[-1].alarm
    assert states[-1].deviation == pytest.approx(-0.1, abs=0.01)


def test_a_bias_within_the_tolerance_is_no_drift() -> None:
    detector = DriftDetector(0.05)
    assert not any(detector.add(seen(0.44), 0.4).alarm for _ in range(20))


def test_a_restart_starts_the_judgement_anew() -> None:
    detector = DriftDetector(0.03)
    for _ in range(6):
        detector.add(seen(0.1), 0.4)
    assert detector.state().alarm
    state = detector.add(seen(math.nan, queries=0, restarted=True), 0.4)
    assert state.windows == 0
    assert not state.alarm


def test_idle_windows_do_not_count() -> None:
    detector = DriftDetector(0.03)
    assert detector.add(seen(math.nan, queries=0), 0.4).windows == 0


@pytest.mark.parametrize(("tolerance", "windows", "least"), [(0.0, 6, 3), (0.1, 2, 3)])
def test_a_wrong_detector_is_one_line(tolerance: float, windows: int, least: int) -> None:
    with pytest.raises(CapacityError, match="drift:"):
        DriftDetector(tolerance, windows=windows, least=least)


class Clock:
    """Time that passes when one sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def readings(ratio: float, failing: set[int]) -> Iterator[Counters | None]:
    for index in range(100):
        queries = 1000.0 * index
        good = Counters(queries, ratio * queries, index, 20.0 * index, index)
        yield None if index in failing else good


def run(ratio: float, failing: set[int], duration_s: float = 60.0) -> str:
    clock, source = Clock(), readings(ratio, failing)

    def read() -> Counters:
        counters = next(source)
        if counters is None:
            raise OSError("refused")
        return counters

    report = watch(
        read,
        lambda _: 0.5,
        duration_s=duration_s,
        interval_s=10.0,
        detector=DriftDetector(0.03),
        characteristic_time_s=25.0,
        clock=clock,
        sleep=clock.sleep,
    )
    assert clock.now == pytest.approx(duration_s)
    return report_markdown(report, "http://engine")


def test_a_bounded_run_reports_agreement() -> None:
    page = run(0.5, set())
    assert "Verdict: **as predicted**" in page
    assert "idle for 20.0 s on average; predicted T_C 25.0 s" in page
    assert page.count("| 0.5000 | 0.5000 |") == 6


def test_a_bounded_run_reports_drift() -> None:
    assert "Verdict: **ALARM: drift**" in run(0.3, set())


def test_failed_readings_are_counted() -> None:
    assert "Readings that failed: 2." in run(0.5, {1, 3})


def test_an_engine_never_reached_is_one_line() -> None:
    with pytest.raises(CapacityError, match=r"never reached in 20 s \(refused\)"):
        run(0.5, set(range(100)), 20.0)


def test_metrics_are_read_over_http() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.path == "/metrics" and self.headers["Authorization"] == "Bearer k"
            self.send_response(200 if good else 404)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        assert parse_counters(fetch_metrics(url, "k")).queries == 1500
        with pytest.raises(CapacityError, match="status 404"):
            fetch_metrics(url)
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(OSError):
        fetch_metrics(url, "k", timeout_s=1.0)
    with pytest.raises(CapacityError, match="expected http://host:port"):
        fetch_metrics("engine:8000")
