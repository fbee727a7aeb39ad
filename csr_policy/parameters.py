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
"""Settings as flat ROS parameters: one table, one validation.

The table is derived from the models of `settings.py`, so a name, a range or a
default exists once. Values come from a parameter file or from a node and leave
as a frozen `Settings`, or as one line that says what is wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from csr_policy.settings import ObservationSettings, Settings

SOURCES = "observation_sources"
_OBSERVATIONS = "observations"
NODE_PARAMETERS = ("autostart", "use_sim_time")
"""Parameters of the node alone; a parameter file may hold them."""


class SettingsError(ValueError):
    """A setting is unknown, has the wrong type or is out of range: one line."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the parameter table.

    Attributes:
        name: Dotted name; for an observation source relative to `observations.<name>`.
        type: bool, int, float, string or string[].
        default: Default value; None where the user must give one.
        description: What it is, one sentence.
        minimum: Smallest value, None for no bound; `exclusive_minimum` leaves it out.
        maximum: Largest value, None for no bound; `exclusive_maximum` leaves it out.
        choices: Allowed strings, empty for any.
    """

    name: str
    type: str
    default: object
    description: str
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    choices: tuple[str, ...] = ()

    @property
    def range_text(self) -> str:
        """The allowed values in words; empty where anything of the type is allowed."""
        if self.choices:
            return " | ".join(self.choices)
        low = "" if self.minimum is None else f"{self.minimum:g}"
        high = "" if self.maximum is None else f"{self.maximum:g}"
        if low and high:
            left = "(" if self.exclusive_minimum else "["
            right = ")" if self.exclusive_maximum else "]"
            return f"{left}{low}, {high}{right}"
        if low:
            return f"{'>' if self.exclusive_minimum else '>='} {low}"
        if high:
            return f"{'<' if self.exclusive_maximum else '<='} {high}"
        return ""


def parameter_table() -> tuple[Parameter, ...]:
    """Every parameter but those of single observation sources, in the order of `Settings`."""
    sources = Parameter(SOURCES, "string[]", (), "Names of the observations; one block each.")
    return (*_rows(Settings, ""), sources)


def observation_table() -> tuple[Parameter, ...]:
    """The parameters of one observation source, relative to `observations.<name>`."""
    return tuple(_rows(ObservationSettings, ""))


def settings_from_parameters(values: Mapping[str, object]) -> Settings:
    """Validate flat parameters into settings.

    Args:
        values: Dotted name to value. Integers are taken for floats, an absent name has
            its default.

    Raises:
        SettingsError: One line: the parameter, its value, what was expected.
    """
    table = {row.name: row for row in parameter_table()}
    per_source = {row.name: row for row in observation_table()}
    sources = _source_names(values.get(SOURCES, ()))
    nested: dict[str, Any] = {_OBSERVATIONS: {name: {} for name in sources}}
    for name, value in values.items():
        if name == SOURCES:
            continue
        if name.startswith(_OBSERVATIONS + "."):
            _put_observation(nested[_OBSERVATIONS], name, value, per_source)
        elif name in table:
            _put(nested, name.split("."), _of_type(table[name], name, value))
        else:
            raise SettingsError(_unknown(name, [*table]))
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise SettingsError(_one_line(error, table, per_source)) from None


def load_parameter_file(path: Path) -> dict[str, object]:
    """Read a ROS 2 parameter file into flat parameters; later blocks override earlier ones.

    What concerns the node alone (`NODE_PARAMETERS`) is left out.

    Raises:
        SettingsError: The file is missing, is not YAML or has no `ros__parameters`.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        detail = " ".join(str(error).split())
        raise SettingsError(f"{path}: is not YAML ({detail})") from error
    flat: dict[str, object] = {}
    blocks = list(_parameter_blocks(document))
    if not blocks:
        raise SettingsError(f"{path}: has no 'ros__parameters' block; expected a ROS 2 file")
    for block in blocks:
        flat.update(_flatten(block, ""))
    return {name: value for name, value in flat.items() if name not in NODE_PARAMETERS}


def flat_parameters(settings: Settings) -> dict[str, object]:
    """The inverse of `settings_from_parameters`: every value under its dotted name."""
    document = settings.model_dump(mode="json")
    observations = document.pop(_OBSERVATIONS)
    flat = _flatten(document, "")
    flat[SOURCES] = list(observations)
    flat.update(_flatten(observations, _OBSERVATIONS + "."))
    return flat


def _rows(model: type[BaseModel], prefix: str) -> Iterator[Parameter]:
    for name, field in model.model_fields.items():
        if name == _OBSERVATIONS:
            continue
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _rows(field.annotation, f"{prefix}{name}.")
        else:
            yield _row(f"{prefix}{name}", field)


def _row(name: str, field: FieldInfo) -> Parameter:
    bounds: dict[str, Any] = {}
    for item in field.metadata:
        for attribute, key, exclusive in (
            ("ge", "minimum", False),
            ("gt", "minimum", True),
            ("le", "maximum", False),
            ("lt", "maximum", True),
        ):
            bound = getattr(item, attribute, None)
            if bound is not None:
                bounds[key] = float(bound)
                bounds[f"exclusive_{key}"] = exclusive
    annotation = field.annotation
    choices: tuple[str, ...] = ()
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        kind, choices = "string", tuple(member.value for member in annotation)
    else:
        names = {bool: "bool", int: "int", float: "float", str: "string"}
        kind = names.get(annotation, "string[]") if isinstance(annotation, type) else "string[]"
    default = None if field.is_required() else field.default
    if isinstance(default, StrEnum):
        default = default.value
    description = " ".join((field.description or "").split())
    return Parameter(name, kind, default, description, choices=choices, **bounds)


def _source_names(value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SettingsError(f"parameter '{SOURCES}': is {value!r}; expected a list of names")
    names = [str(item) for item in value]
    if len(set(names)) != len(names):
        raise SettingsError(f"parameter '{SOURCES}': {names} repeats a name")
    return names


def _put_observation(
    blocks: dict[str, Any], name: str, value: object, table: Mapping[str, Parameter]
) -> None:
    source, _, leaf = name.removeprefix(_OBSERVATIONS + ".").partition(".")
    if source not in blocks:
        raise SettingsError(
            f"parameter '{name}': {source!r} is not in {SOURCES} {sorted(blocks)}"
            + _nearest(source, list(blocks))
        )
    if leaf not in table:
        prefix = f"{_OBSERVATIONS}.{source}."
        raise SettingsError(_unknown(name, [prefix + known for known in table]))
    blocks[source][leaf] = _of_type(table[leaf], name, value)


def _put(target: dict[str, Any], path: Sequence[str], value: object) -> None:
    for part in path[:-1]:
        target = target.setdefault(part, {})
    target[path[-1]] = value


def _of_type(row: Parameter, name: str, value: object) -> object:
    """Take exactly the type of the table; a silent cast would hide a typing error."""
    if row.type == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if row.type == "string[]":
        items = list(value) if isinstance(value, Sequence | frozenset) else None
        if isinstance(value, str) or items is None or not all(isinstance(i, str) for i in items):
            raise SettingsError(f"parameter '{name}': is {value!r}; expected a list of strings")
        return tuple(items)
    wanted = {"bool": bool, "int": int, "float": float, "string": str}[row.type]
    if not isinstance(value, wanted) or (row.type == "int" and isinstance(value, bool)):
        raise SettingsError(f"parameter '{name}': is {value!r}; expected {_expected(row)}")
    return value


def _expected(row: Parameter) -> str:
    return f"{row.type} {row.range_text}".strip()


def _unknown(name: str, known: list[str]) -> str:
    hint = _nearest(name, known) or "; see config/policy.yaml"
    return f"parameter '{name}': is unknown{hint}"


def _nearest(name: str, known: list[str]) -> str:
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; the nearest is '{match[0]}'" if match else ""


def _one_line(
    error: ValidationError, table: Mapping[str, Parameter], per_source: Mapping[str, Parameter]
) -> str:
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"]]
    name = ".".join(parts)
    if first["type"] == "value_error":
        detail = str(first["ctx"]["error"])
        leaf, _, problem = detail.partition(": ")
        return f"parameter '{name + '.' if name else ''}{leaf}': {problem}"
    row = per_source.get(parts[-1]) if parts[:1] == [_OBSERVATIONS] else table.get(name)
    if first["type"] == "missing":
        return f"parameter '{name}': is missing; expected {row.description if row else 'a value'}"
    expected = _expected(row) if row and row.range_text else first["msg"]
    return f"parameter '{name}': is {first['input']!r}; expected {expected}"


def _parameter_blocks(document: object) -> Iterator[Mapping[str, object]]:
    if not isinstance(document, Mapping):
        return
    for key, value in document.items():
        if key == "ros__parameters" and isinstance(value, Mapping):
            yield value
        else:
            yield from _parameter_blocks(value)


def _flatten(block: Mapping[str, object], prefix: str) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in block.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
