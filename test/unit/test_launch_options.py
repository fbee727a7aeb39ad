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
"""What engines.launch.py starts, without ROS 2's launch."""

import sys
from pathlib import Path

import pytest

from csr_policy.serving.command import ServerError, server_command
from csr_policy.serving.launch_options import servers_of_launch, tokenizer_of_model

ARGUMENTS = {
    "model": "some/model",
    "device": "gpu",
    "gpus": "0 1",
    "cores": "0 1",
    "host": "127.0.0.1",
    "ports": "8001 8002",
    "max_model_len": "120000",
    "gpu_memory_utilization": "0.85",
    "api_key_env": "LAUNCH_TEST_KEY",
    "executable": sys.executable,
    "extra_arguments": "",
}


def commands(**changes: str) -> list[tuple[list[str], dict[str, str]]]:
    return [server_command(server) for server in servers_of_launch(ARGUMENTS | changes)]


def value_after(flag: str, command: list[str]) -> str:
    return command[command.index(flag) + 1]


def test_the_two_servers_get_a_gpu_each() -> None:
    assert [variables["CUDA_VISIBLE_DEVICES"] for _, variables in commands()] == ["0", "1"]


def test_each_server_has_its_port_and_the_arguments() -> None:
    for (command, _), port in zip(commands(), ("8001", "8002"), strict=True):
        assert command[0] == sys.executable
        assert value_after("--model", command) == "some/model"
        assert value_after("--port", command) == port
        assert value_after("--host", command) == "127.0.0.1"
        assert value_after("--max-model-len", command) == "120000"
        assert value_after("--gpu-memory-utilization", command) == "0.85"
        assert "--enable-prefix-caching" in command


def test_an_engine_may_have_several_gpus() -> None:
    (first, variables), (second, others) = commands(gpus="0,1 2,3")
    assert (variables["CUDA_VISIBLE_DEVICES"], others["CUDA_VISIBLE_DEVICES"]) == ("0,1", "2,3")
    assert value_after("--tensor-parallel-size", first) == "2"
    assert value_after("--tensor-parallel-size", second) == "2"


def test_the_cpu_gets_a_core_each_and_no_gpu(tiny_folder: Path) -> None:
    for (_, variables), core in zip(
        commands(device="cpu", model=str(tiny_folder)), ("0", "1"), strict=True
    ):
        assert variables["VLLM_CPU_OMP_THREADS_BIND"] == core
        assert "CUDA_VISIBLE_DEVICES" not in variables


def test_the_key_travels_by_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCH_TEST_KEY", "s3cret")
    for command, variables in commands():
        assert variables["VLLM_API_KEY"] == "s3cret"
        assert "s3cret" not in " ".join(command)


def test_no_key_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAUNCH_TEST_KEY", raising=False)
    assert all("VLLM_API_KEY" not in variables for _, variables in commands())


def test_extra_arguments_are_split_as_a_shell_does() -> None:
    for command, _ in commands(extra_arguments="--override '{\"a b\": 1}'"):
        assert value_after("--override", command) == '{"a b": 1}'


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": ""}, "model: is empty"),
        ({"ports": "8001 8001"}, "ports: is '8001 8001'; expected two different ports"),
        ({"ports": "8001 80x"}, "ports: '80x' is not a number"),
        ({"ports": "1 2 3"}, "ports: is '1 2 3'"),
        ({"gpus": "0"}, "gpus: is '0'; expected 2 entries"),
        ({"device": "cpu", "cores": "0"}, "cores: is '0'; expected 2 entries"),
        ({"max_model_len": "-1"}, "max_model_len: '-1' is not a number"),
        ({"gpu_memory_utilization": "90%"}, "gpu_memory_utilization: is '90%'"),
        ({"executable": "/nowhere/python"}, "executable: there is no program '/nowhere/python'"),
    ],
)
def test_a_bad_argument_is_one_line_that_names_it(changes: dict[str, str], line: str) -> None:
    with pytest.raises(ServerError) as error:
        commands(**changes)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_only_a_model_in_a_folder_brings_its_tokenizer(tmp_path: Path) -> None:
    assert tokenizer_of_model(str(tmp_path)) == str(tmp_path)
    assert tokenizer_of_model("some/model") == ""
    assert tokenizer_of_model("") == ""
