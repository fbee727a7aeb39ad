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
"""The servers that the package starts, for real."""

import filecmp
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from transformers import PreTrainedTokenizerFast

from csr_policy.serving import embedded
from csr_policy.serving.command import ServerError, ServerOptions
from csr_policy.serving.models import DEMO_MAX_TOKENS, demo_model, tiny_model
from csr_policy.serving.pair import EnginePair, free_ports, split_cores
from csr_policy.serving.processes import ProcessId, group_members, identify, stop_group
from csr_policy.serving.server import VllmServer

WAIT_S = 120.0
START_TIMEOUT_S = 400.0
REPOSITORY = Path(__file__).resolve().parents[2]


def wait_until(condition: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s, f"waited {WAIT_S:.0f} s for: {what}"
        time.sleep(0.05)


def ask(url: str, path: str, body: dict[str, Any] | None, key: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_S)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


# The shared pair


def test_both_engines_answer_a_repeated_decision_from_their_cache(engine_pair: EnginePair) -> None:
    assert [priming.cached_tokens for priming in engine_pair.prime()] == [256, 256]


def test_the_engines_serve_prompts_of_120_thousand_tokens(engine_pair: EnginePair) -> None:
    for url in engine_pair.urls:
        status, reply = ask(url, "/v1/models", None, engine_pair.api_key)
        assert status == 200
        (served,) = reply["data"]
        assert (served["id"], served["max_model_len"]) == (engine_pair.model_name, 131_072)


def test_a_wrong_api_key_is_refused(engine_pair: EnginePair) -> None:
    status, _ = ask(engine_pair.urls[0], "/v1/models", None, "wrong")
    assert status == 401


def test_the_generate_endpoint_gives_the_log_probability_of_128_labels(
    engine_pair: EnginePair,
) -> None:
    labels = list(range(300, 428))
    sampling = {"max_tokens": 1, "temperature": 0, "allowed_token_ids": labels}
    sampling |= {"logprob_token_ids": labels, "logprobs": len(labels), "detokenize": False}
    body = {"token_ids": [5, 6, 7], "sampling_params": sampling}
    status, reply = ask(engine_pair.urls[0], "/inference/v1/generate", body, engine_pair.api_key)
    assert status == 200, reply
    (content,) = reply["choices"][0]["logprobs"]["content"]
    assert {entry["token_id"] for entry in content["top_logprobs"]} == set(labels)


def test_the_folders_tokenizer_is_the_servers(engine_pair: EnginePair) -> None:
    text = "12.3 odom: x 1.25 m, yaw -0.5 rad; battery 87 %\n«näher» \t 東\n"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(engine_pair.model_folder)
    body = {"prompt": text, "add_special_tokens": False}
    _, reply = ask(engine_pair.urls[0], "/tokenize", body, engine_pair.api_key)
    assert tokenizer.encode(text, add_special_tokens=False) == reply["tokens"]


# Who ends when


OWNER = """
import sys, time
from pathlib import Path
from csr_policy.serving.pair import EnginePair
pair = EnginePair(Path(sys.argv[1]), log_folder=Path(sys.argv[2]))
pair.start(400.0)
print(*(server.identity.pid for server in pair.servers), flush=True)
time.sleep(3600)
"""


@dataclass(frozen=True, slots=True)
class OwnedPair:
    owner: subprocess.Popen[str]
    leaders: tuple[ProcessId, ...]


@pytest.fixture(scope="module")
def owned_pair(
    tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnedPair]:
    """A pair in a process of its own; each test below kills another part of it."""
    logs = tmp_path_factory.mktemp("logs")
    arguments = [sys.executable, "-c", OWNER, str(tiny_model_folder), str(logs)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as owner:
        assert owner.stdout is not None
        leaders = [identify(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(leaders) == 2, "the pair did not start"
        found = tuple(leader for leader in leaders if leader is not None)
        yield OwnedPair(owner, found)
        owner.kill()
        for leader in found:
            stop_group(leader, 0.0)


def test_vllms_engine_process_ends_with_a_killed_api_server(owned_pair: OwnedPair) -> None:
    leader = owned_pair.leaders[0]
    assert len(group_members(leader)) >= 2
    os.kill(leader.pid, signal.SIGKILL)
    wait_until(lambda: not group_members(leader), "the end of vLLM's processes")


def test_vllm_ends_with_a_killed_owner(owned_pair: OwnedPair) -> None:
    leader = owned_pair.leaders[1]
    assert len(group_members(leader)) >= 2
    owned_pair.owner.kill()
    wait_until(lambda: not group_members(leader), "the end of vLLM's processes")


def test_the_embedded_pair_outlives_the_command_and_is_stopped_by_another(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSR_POLICY_RUNTIME", str(tmp_path))
    command = (
        "import sys; from pathlib import Path; from csr_policy.serving import embedded; "
        "embedded.start(embedded.EmbeddedOptions(Path(sys.argv[1]), start_timeout_s=400.0))"
    )
    try:
        subprocess.run(
            [sys.executable, "-c", command, str(tiny_model_folder)],
            check=True,
            timeout=START_TIMEOUT_S,
            cwd=REPOSITORY,
        )
        assert [priming.cached_tokens for priming in embedded.prime_pair()] == [256, 256]
        running = embedded.status()
        assert running is not None
    finally:
        embedded.stop()
    assert [group_members(engine.process) for engine in running.engines] == [(), ()]


# What can go wrong


def test_a_broken_model_is_reported_in_vllms_own_words(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in tiny_model_folder.iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((tiny_model_folder / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["NoSuchModel"]}))
    (cores, _) = split_cores(2)
    options = ServerOptions(model=str(folder), port=free_ports(1)[0], cores=cores)
    server = VllmServer(options, tmp_path / "server.log")
    server.start()
    try:
        with pytest.raises(ServerError, match=r"\Aengine: vLLM ended .*NoSuchModel.*\Z"):
            server.wait_ready(START_TIMEOUT_S)
    finally:
        server.stop()


# The models


def test_the_tiny_model_is_the_same_wherever_it_is_made(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    made = tiny_model(tmp_path)
    names = [file.name for file in tiny_model_folder.iterdir()]
    assert filecmp.cmpfiles(tiny_model_folder, made, names, shallow=False) == (names, [], [])


@pytest.mark.usefixtures("tiny_model_folder")
def test_the_demo_model_has_a_chat_template_and_8192_positions() -> None:
    folder = demo_model()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    frame = tokenizer.apply_chat_template(
        [{"role": "user", "content": "go"}], tokenize=False, add_generation_prompt=True
    )
    assert config["max_position_embeddings"] == DEMO_MAX_TOKENS
    assert frame.endswith("<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n")
