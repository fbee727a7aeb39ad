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
"""The command line: one line for what is wrong, complete output for what is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "csr_policy.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_check_prints_a_parameter_file_back(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("/**:\n  ros__parameters:\n    decision: {rate_hz: 3.0}\n")
    done = command("check", str(path))
    assert done.returncode == 0
    assert "decision.rate_hz: 3.0" in done.stdout.splitlines()
    assert 'task: "Choose the robot\'s next action."' in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "/**:\n  ros__parameters: {decision: {rate: 3.0}}\n",
            "csr-policy: parameter 'decision.rate': is unknown; "
            "the nearest is 'decision.rate_hz'\n",
        ),
        ("[", "is not YAML"),
    ],
)
def test_check_says_what_is_wrong_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    done = command("check", str(path))
    assert done.returncode == 1 and done.stdout == ""
    assert line in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("replay", "/nowhere/bag", "--offline"), "/nowhere/bag"),
        (
            ("bench", "prefix", "--engine", "http://127.0.0.1:9"),
            "--tokenizer: is missing; expected the served model's folder",
        ),
    ],
)
def test_a_command_that_cannot_work_is_one_line(arguments: tuple[str, ...], line: str) -> None:
    done = command(*arguments)
    assert done.returncode == 1, done.stderr
    assert line in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_readme_has_the_parameter_table_of_the_settings() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.split("<!-- parameters: csr-policy parameters --markdown -->\n")[1]
    table = table.split("<!-- end of parameters -->")[0]
    assert table == command("parameters", "--markdown").stdout


def test_the_version_is_the_packages() -> None:
    from csr_policy import __version__

    assert command("--version").stdout == f"{__version__}\n"


def test_json_defaults_are_json() -> None:
    rows = command("parameters", "--markdown").stdout.splitlines()[2:]
    defaults = [row.split(" | ")[2] for row in rows]
    assert len(defaults) > 50
    for default in defaults:
        assert default == "required" or json.loads(default) is not None
