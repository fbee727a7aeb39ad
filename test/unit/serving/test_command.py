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
"""The command line and environment of a vLLM server, as a pure function."""

from pathlib import Path

import pytest

from csr_policy.serving.command import ServerError, ServerOptions, server_command
from csr_policy.serving.pair import free_ports, split_cores


def following(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_a_server_on_the_cpu_gets_its_cores_and_a_pool_for_two_versions(model: Path) -> None:
    arguments, environment = server_command(
        ServerOptions(model=str(model), port=1, cores=(2, 3), max_model_len=1280)
    )
    bytes_per_token = 2 * 2 * 1 * 32 * 4
    blocks = 2 * 1280 // 128 + 1
    assert int(following(arguments, "--kv-cache-memory-bytes")) == blocks * 128 * bytes_per_token
    assert following(arguments, "--max-model-len") == "1280"
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "2,3"
    assert environment["OMP_NUM_THREADS"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in environment


@pytest.mark.parametrize("gpu", [0, 1])
def test_a_server_on_a_gpu_sees_that_gpu_alone(gpu: int) -> None:
    arguments, environment = server_command(
        ServerOptions(model="org/model", port=1, gpus=(gpu,), gpu_memory_utilization=0.8)
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == str(gpu)
    assert following(arguments, "--gpu-memory-utilization") == "0.8"
    assert following(arguments, "--tensor-parallel-size") == "1"


def test_a_model_is_spread_over_all_gpus_of_its_server() -> None:
    arguments, environment = server_command(ServerOptions(model="org/model", port=1, gpus=(2, 3)))
    assert environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert following(arguments, "--tensor-parallel-size") == "2"


def test_the_api_key_is_not_on_the_command_line(model: Path) -> None:
    options = ServerOptions(model=str(model), port=1, api_key="secret")
    arguments, environment = server_command(options)
    assert environment["VLLM_API_KEY"] == "secret"
    assert "secret" not in " ".join(arguments) + repr(options)


def test_the_users_arguments_come_last(model: Path) -> None:
    options = ServerOptions(model=str(model), port=1, extra_arguments=("--max-model-len", "9"))
    assert server_command(options)[0][-2:] == ["--max-model-len", "9"]


def test_the_vllm_command_is_used_where_it_is_named() -> None:
    arguments, environment = server_command(
        ServerOptions(model="org/model", port=1, gpus=(0,), executable="/opt/bin/vllm")
    )
    assert arguments[:3] == ["/opt/bin/vllm", "serve", "org/model"]
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in environment


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kv_tokens": 100}, "kv_tokens: is 100; expected at least max_model_len, 4096"),
        ({"max_model_len": 5000}, "max_model_len: is 5000; expected at most the model's 4096"),
    ],
)
def test_a_cpu_server_that_cannot_work_is_refused(
    model: Path, change: dict[str, int], expected: str
) -> None:
    with pytest.raises(ServerError) as error:
        server_command(ServerOptions(model=str(model), port=1, **change))  # type: ignore[arg-type]
    assert str(error.value) == expected


def test_a_missing_model_is_one_line_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"\Amodel: cannot read .*/none/config.json .*\Z"):
        server_command(ServerOptions(model=str(tmp_path / "none"), port=1))


def test_a_config_that_is_no_decoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    with pytest.raises(ServerError, match="does not describe a decoder"):
        server_command(ServerOptions(model=str(tmp_path), port=1))


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ([0], ((0,), (0,))),
        ([0, 1], ((0,), (1,))),
        ([4, 5, 6, 7], ((4,), (5,))),
        ([0, 1, 2, 3, 4, 5, 6, 7], ((0, 1, 2), (3, 4, 5))),
    ],
)
def test_cores_are_shared_out_and_one_is_left_to_the_node(
    available: list[int], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert split_cores(2, available) == expected


def test_free_ports_differ_and_are_not_those_of_outgoing_connections() -> None:
    ports = free_ports(4)
    low, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert len(set(ports)) == 4
    assert max(ports) < max(32_000, int(low))
