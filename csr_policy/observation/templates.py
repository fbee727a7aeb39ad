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
"""Templates: Jinja2 in a sandbox, with filters for units, rounding and orientation.

A template sees one name, `msg`, the normalised view of the message. It can look and
compute, not reach files, modules or private attributes. A field that does not exist is
an error, never an empty text. A compiled template is immutable; any thread may render.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from csr_policy.observation import geometry, summaries
from csr_policy.observation.arrays import array_text, short
from csr_policy.observation.defaults import DEFAULT_TEMPLATES, GENERIC_TEMPLATE
from csr_policy.observation.generic import generic_text
from csr_policy.observation.text import join_bounded, number, one_line
from csr_policy.observation.view import ArrayView, MessageView, field_names, type_name, view

MESSAGE_NAME = "msg"
DEFAULT_MAX_CHARACTERS = 65_536

FILTERS: Mapping[str, Callable[..., object]] = {
    "array": array_text,
    "attitude": geometry.attitude,
    "axes": geometry.axes,
    "battery": summaries.battery,
    "degrees": geometry.degrees,
    "diagnostics": summaries.diagnostics,
    "fields": generic_text,
    "grid": summaries.grid,
    "imu": summaries.imu,
    "in_frame": geometry.in_frame,
    "joints": summaries.joints,
    "joystick": summaries.joystick,
    "norm": geometry.norm,
    "num": number,
    "path": summaries.path,
    "pitch_deg": geometry.pitch_deg,
    "pose": geometry.pose,
    "position": geometry.position,
    "roll_deg": geometry.roll_deg,
    "seconds": geometry.seconds,
    "sectors": summaries.sectors,
    "short": short,
    "transform": geometry.transform,
    "transforms": summaries.transforms,
    "twist": geometry.twist,
    "yaw_deg": geometry.yaw_deg,
}
"""What a template can use beside Jinja2's own filters."""


class TemplateError(ValueError):
    """A template cannot be compiled, or fails on a message: one line."""


class Template:
    """A compiled template."""

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str, compiled: jinja2.Template) -> None:
        self.source = source
        self._compiled = compiled

    def render(self, message: object, max_characters: int = DEFAULT_MAX_CHARACTERS) -> str:
        """The text of one message: one line of valid UTF-8, cut with a visible mark.

        Args:
            message: A message of rclpy or rosbags, or a view of one.
            max_characters: Longest text.

        Returns:
            The text; empty where the template writes nothing for this message.

        Raises:
            TemplateError: It fails on this message; one line that says why.
        """
        try:
            pieces = self._compiled.generate({MESSAGE_NAME: view(message)})
            return one_line(join_bounded(pieces, max_characters))
        except Exception as error:
            # A template is the user's program: it can fail in any way, and the caller
            # must be able to drop the message and go on.
            raise TemplateError(_reason(error)) from error


def compile_template(source: str) -> Template:
    """Compile a user's template.

    Raises:
        TemplateError: Syntax error, unknown filter or unknown name; one line.
    """
    try:
        tree = _ENVIRONMENT.parse(source)
        unknown = meta.find_undeclared_variables(tree) - {MESSAGE_NAME}
        if unknown:
            raise TemplateError(f"uses {min(unknown)!r}; expected {MESSAGE_NAME!r}")
        if any(meta.find_referenced_templates(tree)):
            raise TemplateError("loads another template; expected a template by itself")
        return Template(source, _ENVIRONMENT.from_string(source))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {_one_line(error.message)}") from error


def message_type(name: str) -> str:
    """A type's full name: `std_msgs/String` is `std_msgs/msg/String`."""
    package, _, rest = name.partition("/")
    return name if "/" in rest else f"{package}/msg/{rest}"


def default_source(type_: str) -> str:
    """Source of a type's default template; the generic one where it has none."""
    return DEFAULT_TEMPLATES.get(message_type(type_), GENERIC_TEMPLATE)


def default_template(type_: str) -> Template:
    """The default template of a message type."""
    return _compiled(default_source(type_))


def default_text(type_: str, message: object, max_characters: int = DEFAULT_MAX_CHARACTERS) -> str:
    """The text a message becomes where no template is configured.

    Raises:
        TemplateError: The message is not of that type.
    """
    return default_template(type_).render(message, max_characters)


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> Template:
    return compile_template(source)


class _MissingField(jinja2.StrictUndefined):
    """An undefined value that tells which fields the message has."""

    @property
    def _undefined_message(self) -> str:
        owner = self._undefined_obj
        if isinstance(owner, MessageView):
            names = ", ".join(field_names(owner))
            return f"{type_name(owner)} has no field {self._undefined_name!r}; it has {names}"
        return super()._undefined_message


def _printed(value: object) -> object:
    """What an expression writes: short numbers, summaries of arrays and messages."""
    if isinstance(value, str | jinja2.Undefined):
        return value
    if isinstance(value, MessageView):
        return generic_text(value)
    if isinstance(value, ArrayView):
        return array_text(value)
    if isinstance(value, bool | int | float):
        return number(value)
    return "" if value is None else str(value)


def _reason(error: Exception) -> str:
    text = _one_line(str(error))
    if isinstance(error, jinja2.TemplateError | ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _one_line(text: str | None) -> str:
    return one_line(text or "")[:300]


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=_MissingField, finalize=_printed, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Any] = environment.filters
    filters.update(FILTERS)
    return environment


_ENVIRONMENT = _environment()
