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
"""What is installed is what is in the source, and says the same everywhere."""

import configparser
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree

import pytest

import csr_policy
from csr_policy import startup

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
INSTALLED = Path(sysconfig.get_path("purelib"), "csr_policy")
COMMAND = Path(sysconfig.get_path("scripts"), "csr-policy")
NODE = Path(sysconfig.get_path("data"), "lib", "csr_policy", "policy_node")

built = pytest.mark.skipif(
    not (INSTALLED / "msg").is_dir(), reason="needs the package built: make build"
)


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_lines(file: Path) -> list[str]:
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "-c "))]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def run(command: list[str | Path], cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_all_versions_are_equal() -> None:
    package_xml = ElementTree.parse(ROOT / "package.xml").findtext("version")
    assert package_xml == setup_cfg()["metadata"]["version"] == csr_policy.__version__
    changelog = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(csr_policy.__version__)} \(", changelog, re.MULTILINE)


def test_every_requirement_is_pinned_in_one_place() -> None:
    places: dict[str, list[str]] = {}
    for file in sorted(REQUIREMENTS.glob("*.txt")):
        for line in requirement_lines(file):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)(\[\w+\])?==([^\s;]+)", line)
            assert match, f"{file.name}: {line!r} is not pinned"
            places.setdefault(canonical(match[1]), []).append(file.name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_pip_install_asks_for_the_robots_requirements() -> None:
    asked = {
        canonical(line.split(">=")[0]): numbers(line.split(">=")[1].split(";")[0])
        for line in setup_cfg()["options"]["install_requires"].split()
    }
    pinned = {
        canonical(line.split("==")[0]): numbers(line.split("==")[1])
        for line in requirement_lines(REQUIREMENTS / "robot.txt")
    }
    assert asked.keys() == pinned.keys()
    assert {name for name in asked if pinned[name] < asked[name]} == set()
    assert {canonical(item.name): item.oldest for item in startup.COMMAND} == asked


def test_every_module_has_its_licence_and_docstring() -> None:
    header = (ROOT / "csr_policy" / "__init__.py").read_text(encoding="utf-8").split('"""')[0]
    assert "Apache License" in header
    for folder in ("csr_policy", "launch", "test", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.read_text(encoding="utf-8").startswith(header + '"""'), path


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "csr_policy").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_source_has_no_folder_that_hides_the_generated_messages() -> None:
    assert not (ROOT / "csr_policy" / "msg").exists()
    assert not (ROOT / "csr_policy" / "srv").exists()


@built
def test_the_installed_modules_are_the_sources() -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*.py")
            if path.relative_to(folder).parts[0] not in ("msg", "srv")
        }

    source, installed = contents(ROOT / "csr_policy"), contents(INSTALLED)
    assert {name for name in source if source[name] != installed.get(name)} == set()
    assert installed.keys() == source.keys()


@built
@pytest.mark.parametrize("started_in", ["source", "elsewhere"])
def test_messages_are_found_wherever_python_starts(started_in: str, tmp_path: Path) -> None:
    code = "from csr_policy.msg import ActionDecision; from csr_policy.srv import Decide, Ask"
    code += "; print(ActionDecision.OK, Decide.Request().task == '')"
    result = run([sys.executable, "-c", code], ROOT if started_in == "source" else tmp_path)
    assert result.stdout.split() == ["1", "True"], result.stderr


@built
def test_the_command_works_from_any_folder(tmp_path: Path) -> None:
    result = run([COMMAND, "--help"], tmp_path)
    assert result.returncode == 0, result.stderr
    for command in ("engines", "demo", "bench", "replay"):
        assert command in result.stdout


@built
def test_a_missing_requirement_is_one_clear_line(tmp_path: Path) -> None:
    # Ubuntu 24.04's own pydantic is version 1: the same name, found first.
    metadata = tmp_path / "pydantic-1.10.14.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pydantic\nVersion: 1.10.14\n")
    for program in (NODE, COMMAND):
        result = run([program], tmp_path, PYTHONPATH=str(tmp_path))
        assert result.returncode == 1
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert "missing Python requirement 'pydantic>=2.7' (1.10.14 is installed)" in line
        assert "requirements/robot.txt" in line


def test_a_requirement_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(startup.metadata, "version", missing)
    assert "'jinja2>=3.1' (none is installed)" in startup.robot_requirements_problem()


def test_nothing_is_missing_here() -> None:
    assert startup.command_requirements_problem() == ""
    assert startup.requirements_file().is_file()
