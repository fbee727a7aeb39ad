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
"""Two vLLM servers side by side: the primary and the secondary engine of one robot.

On a machine without a GPU each server is confined to its own processors, so that a warm-up on one
leaves the other's decisions alone; on GPUs each has its own. Not thread-safe: one thread at a
time owns an `EnginePair`. The servers end with the process that started them.
"""

import os
import random
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from csr_policy.serving.command import SERVED_MODEL_NAME, ServerOptions, model_shape
from csr_policy.serving.priming import Priming
from csr_policy.serving.server import (
    STOP_TIMEOUT_S,
    Progress,
    ServerError,
    VllmServer,
    wait_all_ready,
)

START_TIMEOUT_S = 300.0
# Below the range that the kernel hands out to outgoing connections: a port from there could be
# taken between the moment it is chosen and the moment vLLM binds it, ten seconds later.
_PORTS = range(20_000, 32_000)


class EnginePair:
    """Two vLLM servers with one model, on 127.0.0.1 and with a random API key.

    Args:
        model_folder: Folder of the model.
        max_model_len: Longest prompt plus reply in tokens; 0 takes the model's.
        kv_tokens: Tokens each server's KV pool holds (CPU); 0 takes twice `max_model_len`.
        gpus: One GPU for each server; empty serves on the CPU.
        ports: One port for each server; empty takes free ones.
        host: Address the servers listen on.
        api_key: Key of both servers; None makes a random one.
        log_folder: Takes the servers' logs; None makes a temporary one, which a clean stop
            removes.
        detached: Let the servers outlive this process.
        extra_arguments: More arguments of `vllm serve`.

    Raises:
        ServerError: The model's folder does not hold a model.
    """

    def __init__(
        self,
        model_folder: Path,
        *,
        max_model_len: int = 0,
        kv_tokens: int = 0,
        gpus: Sequence[int] = (),
        ports: Sequence[int] = (),
        host: str = "127.0.0.1",
        api_key: str | None = None,
        log_folder: Path | None = None,
        detached: bool = False,
        extra_arguments: Sequence[str] = (),
    ) -> None:
        self.model_folder = model_folder.expanduser().resolve()
        self.model_name = SERVED_MODEL_NAME
        self.max_model_len = max_model_len or model_shape(str(self.model_folder)).max_tokens
        self.api_key = api_key or secrets.token_urlsafe(32)
        self._temporary = log_folder is None
        self.log_folder = log_folder or Path(tempfile.mkdtemp(prefix="csr_policy_engines_"))
        self.log_folder.mkdir(parents=True, exist_ok=True)
        chosen = tuple(ports) or free_ports(2, host)
        cores = ((), ()) if gpus else split_cores(2)
        self.servers = tuple(
            VllmServer(
                ServerOptions(
                    model=str(self.model_folder),
                    port=chosen[number],
                    name=f"engine_{number}",
                    host=host,
                    api_key=self.api_key,
                    max_model_len=self.max_model_len,
                    kv_tokens=kv_tokens,
                    gpus=tuple(gpus[number : number + 1]),
                    cores=cores[number],
                    extra_arguments=tuple(extra_arguments),
                ),
                self.log_folder / f"engine_{number}.log",
                detached=detached,
            )
            for number in range(2)
        )

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URLs of the servers."""
        return tuple(server.url for server in self.servers)

    def launch(self) -> None:
        """Start both processes and return at once.

        Raises:
            ServerError: One cannot be started; the other is stopped.
        """
        try:
            for server in self.servers:
                server.start()
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def wait_ready(
        self, timeout_s: float = START_TIMEOUT_S, progress: Progress | None = None
    ) -> tuple[Priming, ...]:
        """Wait until both are primed.

        Raises:
            ServerError: One ended, refused or took too long; both are stopped.
        """
        try:
            return tuple(wait_all_ready(list(self.servers), timeout_s, progress))
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def start(self, timeout_s: float = START_TIMEOUT_S, progress: Progress | None = None) -> None:
        """Start both servers at the same time and wait until they are primed.

        Raises:
            ServerError: One cannot be started, ended, refused or took too long; both are stopped.
        """
        self.launch()
        self.wait_ready(timeout_s, progress)

    def prime(self, timeout_s: float = 60.0) -> tuple[Priming, ...]:
        """Ask each server one decision twice and see the second come from the cache.

        Raises:
            ServerError: One refused, ended or does not cache.
        """
        return tuple(server.prime(timeout_s) for server in self.servers)

    def check(self) -> None:
        """Raise if a server has ended.

        Raises:
            ServerError: One has; with the last error of its log.
        """
        for server in self.servers:
            server.check()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S, *, keep_logs: bool = False) -> None:
        """Stop both servers, within `timeout_s` and the few seconds that a kill takes."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(lambda server: server.stop(timeout_s), self.servers))
        if self._temporary and not keep_logs:
            shutil.rmtree(self.log_folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def split_cores(
    servers: int, available: Sequence[int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Share this process's processors out to the servers.

    With more than one processor for each server, one is left to the node and its robot.

    Args:
        servers: Number of servers.
        available: Processor numbers; None takes those that this process may use.

    Returns:
        The processors of each server; they overlap only where there are too few.
    """
    cores = sorted(os.sched_getaffinity(0)) if available is None else list(available)
    each = max(1, (len(cores) - 1) // servers)
    return tuple(
        tuple(cores[(number * each + offset) % len(cores)] for offset in range(each))
        for number in range(servers)
    )


def free_ports(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """Choose ports that nobody listens on.

    Raises:
        ServerError: There are none.
    """
    found: list[int] = []
    for port in random.sample(_PORTS, k=min(len(_PORTS), 50 * count)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return tuple(found)
    raise ServerError(f"no free port between {_PORTS.start} and {_PORTS.stop - 1} on {host}")
