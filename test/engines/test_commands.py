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
"""Commands as a user types them, on real engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from csr_policy.serving.pair import EnginePair

ROOT = Path(__file__).resolve().parents[2]


def test_bench_prefix_writes_what_it_saw(engine_pair: EnginePair, tmp_path: Path) -> None:
    result = tmp_path / "prefix.json"
    urls = [option for url in engine_pair.urls for option in ("--engine", url)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "csr_policy.cli", "bench", "prefix", "--json", str(result)),
            *("--decisions", "60", "--tau-mem", "2000", *urls),
            *("--tokenizer", str(engine_pair.model_folder)),
        ],
        cwd=ROOT,
        env=os.environ | {"CSR_POLICY_API_KEY": engine_pair.api_key},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(result.read_text())
    assert report["decisions"] == len(report["rows"]) == 60
    assert report["violations"] == 0 and report["swaps"] >= 3
    for row in report["rows"]:
        assert row["cached_tokens"] >= row["must_be_cached"]


def test_the_readmes_ten_lines_of_python_decide(engine_pair: EnginePair) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = readme.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    for number, url in enumerate(engine_pair.urls, 8001):
        code = code.replace(f"http://127.0.0.1:{number}", url)
    code = code.replace("models/smollm2-135m-instruct", str(engine_pair.model_folder))
    done = subprocess.run(
        [sys.executable, "-c", code + "\npolicy.close()\n"],
        cwd=ROOT,
        env=os.environ | {"CSR_POLICY_API_KEY": engine_pair.api_key},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "outcome=<Outcome.OK: 1>" in done.stdout
