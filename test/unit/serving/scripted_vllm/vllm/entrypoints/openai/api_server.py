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
"""Stands in for vLLM's API server in tests of how a server is started, watched and stopped.

It has the same shape as the real one, an API server that spawns an engine process, and answers
the health check and a decision. `SCRIPTED_VLLM` says how it misbehaves.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = os.environ.get("SCRIPTED_VLLM", "")
KEY = os.environ.get("VLLM_API_KEY", "")
SEEN: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply(200, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if KEY and self.headers["Authorization"] != f"Bearer {KEY}":
            self.reply(401, b'{"error": "Unauthorized"}')
        elif MODE == "no_generate" and self.path.startswith("/inference"):
            self.reply(404, b'{"detail": "Not Found"}')
        elif MODE == "refuse":
            error = {"message": "max_tokens must\nbe at least 1", "code": 400}
            self.reply(400, json.dumps({"error": error}).encode())
        else:
            cached = 256 if body in SEEN and MODE != "uncached" else 0
            SEEN.add(body)
            usage = {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": cached}}
            self.reply(200, json.dumps({"usage": usage}).encode())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    if MODE == "crash":
        print(
            "(EngineCore pid=7) ERROR 01-01 00:00:00 [core.py:1] ValueError: no room", flush=True
        )
        print("RuntimeError: Engine core initialization failed. See root cause above.")
        sys.exit(1)
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    engine = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    engine.start()
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    chosen, _ = parser.parse_known_args()
    server = ThreadingHTTPServer((chosen.host, chosen.port), Handler)
    if MODE != "deaf":
        signal.signal(signal.SIGTERM, lambda *_: (engine.kill(), os._exit(0)))
    server.serve_forever()


if __name__ == "__main__":
    main()
