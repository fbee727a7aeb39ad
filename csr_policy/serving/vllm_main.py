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
"""Runs vLLM's API server so that none of its processes outlives its owner.

Run by path, in the environment that has vLLM; the arguments are those of `vllm serve` without
the model's name in front. vLLM starts an engine process (and workers) beside the API server.
An API server that is killed leaves them behind, each with gigabytes of memory and a core, so:

- every child that vLLM spawns imports this file again as `__mp_main__` (multiprocessing does so
  with the main script) and asks the kernel to be killed together with its parent;
- the API server watches its owner, by process id, and ends with it. The kernel's signal will not
  do there: it fires when the *thread* that started the server ends.

Environment: `CSR_POLICY_SERVER_OWNER`, the owner's process id (unset: nobody, a server that is
meant to stay); `CSR_POLICY_SERVER_CORES`, processor numbers such as `0` or `2,3`, to which the
whole server is confined. Only the standard library is imported before vLLM.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
import time

OWNER_VARIABLE = "CSR_POLICY_SERVER_OWNER"
CORES_VARIABLE = "CSR_POLICY_SERVER_CORES"
_PARENT_VARIABLE = "CSR_POLICY_SERVER_PARENT"
_PR_SET_PDEATHSIG = 1
_OWNER_POLL_S = 0.25
_TERMINATE_GRACE_S = 5.0


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[_PARENT_VARIABLE]):
        os._exit(1)  # it died before the request above
    os.environ[_PARENT_VARIABLE] = str(os.getpid())


def _end_with_owner(owner: int) -> None:
    while os.getppid() == owner:
        time.sleep(_OWNER_POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_TERMINATE_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the API server in this process until it ends."""
    own_folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != own_folder]
    owner = os.environ.pop(OWNER_VARIABLE, "")
    if owner:
        threading.Thread(target=_end_with_owner, args=(int(owner),), daemon=True).start()
    os.environ[_PARENT_VARIABLE] = str(os.getpid())
    cores = os.environ.pop(CORES_VARIABLE, "")
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")


if __name__ == "__mp_main__":
    die_with_parent()
elif __name__ == "__main__":
    main()
