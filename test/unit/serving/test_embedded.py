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
"""The pair in the background: its state, its key, its end."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from csr_policy.serving import embedded
from csr_policy.serving.command import ServerError
from csr_policy.serving.pair import EnginePair
from csr_policy.serving.processes import group_members

WAIT_S = 60.0


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
