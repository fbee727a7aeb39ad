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
"""Message types of a bag: from definition texts to functions that decode a message.

A type is looked for in the bag itself first, since only that is what was recorded, then
in ROS 2 Jazzy, then among the interface packages installed here. Each type gets a store
of its own, so that one definition that cannot be used spoils no other. Not thread-safe;
one reader owns one catalogue.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, cast

from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from csr_policy.observation.view import ArrayView, MessageView, field_items, view

Decode = Callable[[bytes], object]
_Types = dict[str, Any]
"""Type name to (constants, fields), as rosbags keeps them."""

_SEPARATOR = re.compile(r"^={60,}\n", re.MULTILINE)
_PART_SEPARATOR = re.compile(r"^---[ \t]*\n?", re.MULTILINE)
_IDL_HEADER = "IDL: "
_ENCAPSULATION_BYTES = 4
_PADDING_BYTES = 3
_SERVICE_PARTS = ("Request", "Response")
_ACTION_PARTS = ("Goal", "Result", "Feedback")


class TypeUnknownError(ValueError):
    """A message type cannot be decoded: one line that says why."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as a bag embeds it: text, and its format (`msg`, `idl` or a foreign one)."""

    format: str
    text: str


class TypeCatalogue:
    """Decoders of the types in one bag."""

    def __init__(self, embedded: Mapping[str, Definition]) -> None:
        self._embedded = embedded
        self._decoders: dict[str, Decode | TypeUnknownError] = {}

    def decoder(self, type_: str) -> Decode:
        """The function from CDR bytes to a message.

        Raises:
            TypeUnknownError: There is no definition, or none that can be used.
        """
        if type_ not in self._decoders:
            try:
                self._decoders[type_] = self._make(type_)
            except TypeUnknownError as error:
                self._decoders[type_] = error
        found = self._decoders[type_]
        if isinstance(found, TypeUnknownError):
            raise found
        return found

    def _make(self, type_: str) -> Decode:
        definition = self._embedded.get(type_)
        store = get_typestore(Stores.EMPTY)
        try:
            types = _parse(definition, type_) if definition else _known(type_)
            if types is None:
                raise TypeUnknownError(
                    f"type {type_} has no definition in the bag, in ROS 2 Jazzy or installed here"
                )
            _complete(types)
            store.register({name: _unsigned_bytes(item) for name, item in types.items()})
            return _decoder(store, type_)
        except TypeUnknownError:
            raise
        except Exception as error:
            # A definition is text from outside; rosbags reports what it cannot take by
            # several kinds of exception, and asserts.
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise TypeUnknownError(
                f"type {type_}: its definition is unusable ({reason})"
            ) from error


def _decoder(store: Any, type_: str) -> Decode:
    """Decode by a store's definition, and take what Fast CDR leaves at a message's end.

    Serialising outside a publisher (rclpy's `serialize_message`, as used to write bags)
    reserves room for the alignment of sequences that turn out to be empty, and does not
    trim it. rosbags' own decoder takes any such rest for a definition that does not fit.
    """
    definition = store.get_msgdef(type_)

    def decode(data: bytes) -> object:
        if len(data) < _ENCAPSULATION_BYTES or data[0] != 0 or data[1] not in (0, 1):
            raise ValueError("is not plain CDR")
        read = definition.deserialize_cdr_le if data[1] else definition.deserialize_cdr_be
        body = memoryview(data)[_ENCAPSULATION_BYTES:]
        message, end = read(body, 0, definition.cls, store)
        rest = len(body) - end
        if rest > _PADDING_BYTES and rest > _PADDING_BYTES + 8 * _empty_sequences(message):
            raise ValueError(f"{rest} bytes are left over; the definition does not fit")
        return cast(object, message)

    return decode


def _empty_sequences(value: object) -> int:
    if isinstance(value, MessageView):
        return sum(_empty_sequences(item) for _, item in field_items(value))
    if isinstance(value, ArrayView):
        if not value:
            return 1
        if isinstance(value[0], MessageView):
            return sum(_empty_sequences(value[index]) for index in range(len(value)))
    return _empty_sequences(view(value)) if is_dataclass(value) else 0


def _parse(definition: Definition, type_: str) -> _Types:
    """Read a definition with all it brings along.

    Services and actions are recorded with the text of their interface file, parts
    separated by `---`, while the recorded type is one that is generated from it.
    """
    if definition.format == "idl":
        return _parse_idl(definition.text)
    if definition.format != "msg":
        raise TypeUnknownError(
            f"type {type_} is defined in the format {definition.format!r}; expected msg or idl"
        )
    text = definition.text.replace("\r\n", "\n")
    head, *dependencies = _SEPARATOR.split(text)
    parts = _PART_SEPARATOR.split(head)
    if len(parts) == 1:
        return dict(get_types_from_msg(text, type_))
    return _parse_interface(parts, dependencies, type_)


def _parse_idl(text: str) -> _Types:
    types: _Types = {}
    sections = [part for part in _SEPARATOR.split(text) if part.strip()]
    for section in sections:
        body = section.partition("\n")[2] if section.startswith(_IDL_HEADER) else section
        types.update(get_types_from_idl(body))
    return types


def _parse_interface(parts: list[str], dependencies: list[str], type_: str) -> _Types:
    """Types of a service or an action: its parts, and the one that is recorded."""
    names = _SERVICE_PARTS if len(parts) == len(_SERVICE_PARTS) else _ACTION_PARTS
    if len(parts) != len(names):
        raise TypeUnknownError(
            f"type {type_}: its definition has {len(parts)} parts; expected 2, 3"
        )
    package, kind, leaf = type_.split("/")
    base = re.sub(r"_(Event|FeedbackMessage|Request|Response|Goal|Result|Feedback)\Z", "", leaf)
    types: _Types = {}
    for name, part in zip(names, parts, strict=True):
        marked = "".join(f"{'=' * 80}\n{text}" for text in dependencies)
        body = part if part.endswith("\n") or not part else part + "\n"
        placeholder = f"{package}/msg/{base}_{name}"
        parsed = dict(get_types_from_msg(body + marked, placeholder))
        types[f"{package}/{kind}/{base}_{name}"] = parsed.pop(placeholder)
        types.update(parsed)
    prefix = f"{package}/{kind}/{base}"
    if leaf == f"{base}_Event":
        types[type_] = (
            [],
            [
                ("info", (Nodetype.NAME, "service_msgs/msg/ServiceEventInfo")),
                ("request", (Nodetype.SEQUENCE, ((Nodetype.NAME, f"{prefix}_Request"), 1))),
                ("response", (Nodetype.SEQUENCE, ((Nodetype.NAME, f"{prefix}_Response"), 1))),
            ],
        )
    elif leaf == f"{base}_FeedbackMessage":
        types[type_] = (
            [],
            [
                ("goal_id", (Nodetype.NAME, "unique_identifier_msgs/msg/UUID")),
                ("feedback", (Nodetype.NAME, f"{prefix}_Feedback")),
            ],
        )
    if type_ not in types:
        raise TypeUnknownError(f"type {type_} is none of those its definition generates")
    return types


def _known(type_: str) -> _Types | None:
    """A type's definition from Jazzy or from an installed package; None where there is none."""
    jazzy = get_typestore(Stores.ROS2_JAZZY).fielddefs
    if type_ in jazzy:
        return {type_: jazzy[type_]}
    installed = _installed_text(type_)
    return None if installed is None else _parse(Definition("msg", installed), type_)


def _complete(types: _Types) -> None:
    """Add the types that the fields name and the definition did not bring along."""
    missing = {name for name in _references(types.values()) if name not in types}
    while missing:
        for name in sorted(missing):
            found = _known(name)
            if found is None:
                raise TypeUnknownError(f"the definition of {name}, which it uses, is missing")
            types.update({key: value for key, value in found.items() if key not in types})
        missing = {name for name in _references(types.values()) if name not in types}


def _unsigned_bytes(definition: Any) -> Any:
    """A definition whose fields of type byte are read as rclpy does: unsigned."""

    def unsigned(description: Any) -> Any:
        kind, detail = description
        if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
            return kind, (unsigned(detail[0]), detail[1])
        return (kind, ("uint8", 0)) if detail == ("byte", 0) else description

    constants, fields = definition
    return constants, [(name, unsigned(description)) for name, description in fields]


def _references(definitions: Iterable[Any]) -> Iterator[str]:
    for _, fields in definitions:
        for _, description in fields:
            kind, detail = description
            if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
                kind, detail = detail[0]
            if kind == Nodetype.NAME:
                yield detail


def _installed_text(type_: str) -> str | None:
    """The interface file of a type in the ROS installation around this Python."""
    package, kind, leaf = type_.split("/") if type_.count("/") == 2 else ("", "", "")
    if not package:
        return None
    name = leaf if kind == "msg" else leaf.partition("_")[0]
    roots = [root for root in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if root]
    for root in [*roots, sys.prefix]:
        file = Path(root) / "share" / package / kind / f"{name}.{kind}"
        if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return None
