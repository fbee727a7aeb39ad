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
"""The set-up says what is wrong in one line, and repairs what the wheels get wrong."""

import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def make_venv(folder: Path, python: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", ROOT / "tools" / "make_venv.sh", "kind", folder, python],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_python_that_only_has_its_name_is_not_taken(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.12", "python3"):
        shim = tmp_path / "bin" / name
        shim.parent.mkdir(exist_ok=True)
        shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
        shim.chmod(0o755)
    result = make_venv(tmp_path / "venv", "", str(tmp_path / "bin"))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("csr_policy: found no Python 3.11 or 3.12 with the venv module")
    assert not (tmp_path / "venv").exists()


def test_a_named_python_that_will_not_do_is_named(tmp_path: Path) -> None:
    result = make_venv(tmp_path / "venv", "/nowhere/python3", os.environ["PATH"])
    assert result.returncode == 1
    assert "(tried /nowhere/python3)" in result.stderr


def test_an_environment_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    stamp = tmp_path / "venv" / "stamps" / "python"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("ros-jazzy /elsewhere\n")
    result = make_venv(tmp_path / "venv", sys.executable, os.environ["PATH"])
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "is of the kind 'ros-jazzy /elsewhere', and this is 'kind'" in line
    assert stamp.read_text() == "ros-jazzy /elsewhere\n"
    assert [path.name for path in (tmp_path / "venv").iterdir()] == ["stamps"]


def test_the_wheels_cmake_files_get_this_environments_headers() -> None:
    repair = runpy.run_path(str(ROOT / "tools" / "repair_wheels.py"))["repair"]
    foreign = "/opt/python/cp311-cp311/include/python3.11"
    numpy_headers = "/opt/python/cp311-cp311/lib/python3.11/site-packages/numpy/_core/include"
    repaired = repair(f'INCLUDES "{foreign};{numpy_headers};${{_IMPORT_PREFIX}}/include"')
    assert repaired == (
        f'INCLUDES "{sysconfig.get_path("include")};{np.get_include()};'
        '${_IMPORT_PREFIX}/include"'
    )
    assert repair(repaired) == repaired


def test_make_without_a_target_says_what_there_is() -> None:
    result = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    for target in ("demo", "demo BAG=", "test", "lint", "build", "env", "clean"):
        assert f"make {target}" in result.stdout
