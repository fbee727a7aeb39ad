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
"""An HTTP server that behaves like vLLM where it is told to, for error paths.

It keeps a prefix cache by blocks, so that cached tokens mean what they mean on a
real server. It proves nothing on its own: the same paths run against vLLM too.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tokenizers import Tokenizer

BLOCK = 16


class ScriptedEngine:
    """State and script of one server."""

    def __init__(self, tokenizer_json: str, max_model_len: int = 8192) -> None:
        self.tokenizer = Tokenizer.from_file(tokenizer_json)
        self.max_model_len = max_model_len
        self.lock = threading.Lock()
        self.cache: set[tuple[str, tuple[int, ...]]] = set()
        self.prompts: list[list[int]] = []
        self.before: Callable[[str, dict[str, Any]], tuple[int, bytes] | None] = (
            lambda path, body: None
        )
        """Called with path and body; a (status, body) ends the request with it."""
        self.gate = threading.Event()
        """While cleared, generation waits."""
        self.gate.set()
        self.ignores_label_scores = False
        self.offers_generate = True
        self.reports_cache = True
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cached(self, salt: str, ids: list[int]) -> int:
        """Count cached tokens, then cache the prompt's full blocks."""
        with self.lock:
            self.prompts.append(ids)
            hit = 0
            while hit + BLOCK <= len(ids) - 1 and (salt, tuple(ids[: hit + BLOCK])) in self.cache:
                hit += BLOCK
            for end in range(BLOCK, len(ids) + 1, BLOCK):
                self.cache.add((salt, tuple(ids[:end])))
            return hit


def _score(ids: list[int], label: int) -> float:
    """A log-probability that depends on the whole prompt and the label."""
    return -1.0 - (hash((tuple(ids), label)) % 997) / 500


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: ScriptedEngine

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._answer(json.loads(self.rfile.read(length)))

    def _answer(self, body: dict[str, Any]) -> None:
        scripted = self.engine.before(self.path, body)
        status, payload = scripted if scripted else self._serve(body)
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
        except OSError:
            self.close_connection = True

    def _serve(self, body: dict[str, Any]) -> tuple[int, bytes]:
        engine = self.engine
        if self.path == "/v1/models":
            return _json({"data": [{"id": "scripted", "max_model_len": engine.max_model_len}]})
        if self.path == "/metrics":
            line = f'vllm:cache_config_info{{block_size="{BLOCK}",num_gpu_blocks="4096"}} 1.0\n'
            return 200, line.encode()
        if self.path == "/tokenize":
            encoded = engine.tokenizer.encode(body["prompt"], add_special_tokens=False)
            return _json({"tokens": encoded.ids})
        if self.path == "/inference/v1/generate" and not engine.offers_generate:
            return 404, b'{"detail":"Not Found"}'
        return self._generate(body)

    def _generate(self, body: dict[str, Any]) -> tuple[int, bytes]:
        engine = self.engine
        generate = "token_ids" in body
        ids = body["token_ids"] if generate else body["prompt"]
        if len(ids) >= engine.max_model_len:
            message = f"maximum model length is {engine.max_model_len}, prompt {len(ids)}"
            return 400, json.dumps({"error": {"message": message}}).encode()
        assert engine.gate.wait(60)
        options = body["sampling_params"] if generate else body
        hit = engine.cached(body.get("cache_salt", ""), ids)
        labels = options.get("allowed_token_ids") or [7]
        scores = {label: _score(ids, label) for label in labels}
        best = max(scores, key=lambda label: scores[label])
        if engine.ignores_label_scores and "logprob_token_ids" in options:
            scores = {best: scores[best]}
        usage: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": 1}
        if engine.reports_cache:
            usage["prompt_tokens_details"] = {"cached_tokens": hit}
        choice = _generate_choice(best, scores) if generate else _completion_choice(best, scores)
        return _json({"choices": [choice], "usage": usage})


def _generate_choice(best: int, scores: dict[int, float]) -> dict[str, Any]:
    top = [{"token_id": token, "logprob": score} for token, score in scores.items()]
    first = {"token_id": best, "logprob": scores[best], "top_logprobs": top}
    return {"token_ids": [best], "logprobs": {"content": [first]}}


def _completion_choice(best: int, scores: dict[int, float]) -> dict[str, Any]:
    top = {f"token_id:{token}": score for token, score in scores.items()}
    return {
        "text": "x",
        "logprobs": {"tokens": [f"token_id:{best}"], "top_logprobs": [top]},
    }


def _json(document: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(document).encode()


@contextmanager
def serving(engine: ScriptedEngine, port: int = 0) -> Iterator[ScriptedEngine]:
    """Serve until the block ends."""
    handler = type("Handler", (_Handler,), {"engine": engine})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    engine.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield engine
    finally:
        engine.gate.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def expected_probabilities(ids: list[int], labels: tuple[int, ...]) -> list[float]:
    """What a decision on this prompt must say."""
    weights = [math.exp(_score(ids, label)) for label in labels]
    return [weight / sum(weights) for weight in weights]
