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
"""Groups of flags that several commands share, and one line for every wrong input."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
import yaml

from csr_policy.capacity.errors import CapacityError, nearest

Command = Callable[..., Any]
FAULT_STATUS = 1
ALARM_STATUS = 3


def command(function: Command) -> Command:
    """Make a function a command.

    A parameter whose type is a dataclass stands for a flag for each of its fields. A
    `--config FILE` with the flags' names is added. An error of the user is one line.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    bundles: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name in inspect.signature(function).parameters:
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            bundles[name] = kind
            parameters += _fields(kind)
        else:
            old = inspect.signature(function).parameters[name]
            parameters.append(old.replace(annotation=hints[name], kind=old.KEYWORD_ONLY))
    parameters.append(_config_parameter())

    @functools.wraps(function)
    def run(**values: Any) -> None:
        values.pop("config")
        arguments = {}
        for name, kind in bundles.items():
            own = [field.name for field in dataclasses.fields(kind)]
            arguments[name] = kind(**{key: values.pop(key) for key in own})
        try:
            function(**arguments, **values)
        except CapacityError as error:
            print(f"csr-policy capacity: {error}", file=sys.stderr)
            raise typer.Exit(FAULT_STATUS) from None

    del run.__wrapped__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _fields(kind: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
    ]


def _config_parameter() -> inspect.Parameter:
    option = typer.Option(
        "--config", help="YAML file with flags by name.", is_eager=True, callback=_load
    )
    annotation = typing.Annotated[Path | None, option]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("config", kind, default=None, annotation=annotation)


def _load(context: typer.Context, path: Path | None) -> Path | None:
    """Take a file's values as defaults; a flag on the command line wins."""
    if path is None or context.resilient_parsing:
        return path
    try:
        context.default_map = {**(context.default_map or {}), **_values(context, path)}
    except CapacityError as error:
        print(f"csr-policy capacity: {error}", file=sys.stderr)
        raise typer.Exit(FAULT_STATUS) from None
    return path


def _values(context: typer.Context, path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CapacityError(f"config: cannot read {str(path)!r} ({error.strerror})") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise CapacityError(f"config: {str(path)!r} is no YAML ({reason})") from None
    if not isinstance(content, dict):
        raise CapacityError(f"config: {str(path)!r} is no mapping; expected flag: value")
    own = {name: one for one in context.command.params for name in _names(one)}
    known = own.keys() | _names_of_all(context)
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise CapacityError(f"config: {str(path)!r}: no flag {key!r}; {nearest(name, known)}")
        if name in own:
            values[str(own[name].name)] = value
    return values


def _names(parameter: Any) -> set[str]:
    flags = [flag.lstrip("-").replace("-", "_") for flag in parameter.opts]
    return {str(parameter.name), *flags}


def _names_of_all(context: typer.Context) -> set[str]:
    """Flags of the other commands, so that one file serves all of them."""
    group: Any = context.parent.command if context.parent else None
    names: set[str] = set()
    for other in getattr(group, "commands", {}).values():
        for parameter in other.params:
            names |= _names(parameter)
    return names
