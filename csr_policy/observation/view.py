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
"""One normalised view of a message, the same from rclpy and from a bag.

rclpy gives lists, `array.array`, NumPy arrays and single `bytes`; rosbags gives
dataclasses full of NumPy arrays and scalars. Templates see neither: a message is
attributes, a sequence behaves like a list, a number is Python's own. Arrays are
wrapped, never converted, so that a 10 MB point cloud costs nothing to look at.
Pure; any thread may call it.
"""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

MAX_ITERATED = 10_000
"""Longest array a template may loop over: beyond it a loop takes longer than a decision."""

_EMPTY_MESSAGE_FIELD = "structure_needs_at_least_one_member"


class ViewError(ValueError):
    """A message cannot be looked at in this way: one line."""


class MessageView:
    """A message whose fields are attributes.

    Only fields and constants can be reached, so that a field may have any name. What
    else there is to know of the message is told by the functions of this module.
    """

    __slots__ = ("_message",)

    def __init__(self, message: object) -> None:
        self._message = message

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = _attributes(_class_of(self)).get(name)
        if attribute is None:
            if not name.isupper():
                raise AttributeError(name)
            attribute = name
        return view(getattr(self._message, attribute))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageView):
            return NotImplemented
        names = field_names(self)
        return names == field_names(other) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type_name(self)}>"


class ArrayView(Sequence[object]):
    """A sequence field: behaves like a list and converts an element when it is asked for."""

    __slots__ = ("_items",)

    def __init__(self, items: NDArray[Any] | Sequence[object]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> ArrayView: ...
    def __getitem__(self, index: int | slice) -> object:
        if isinstance(index, slice):
            return ArrayView(self._items[index])
        return view(self._items[index])

    def __iter__(self) -> Iterator[object]:
        if len(self._items) > MAX_ITERATED:
            raise ViewError(
                f"an array of {len(self._items)} values is too long to loop over; "
                f"expected at most {MAX_ITERATED}, take a part of it: [:100]"
            )
        return map(view, self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<array of {len(self)}>"


def view(value: object) -> object:
    """Normalise one value: a message, a sequence or a scalar."""
    if value is None or isinstance(value, bool | int | float | str | MessageView | ArrayView):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return ArrayView(value) if value.ndim else value.item()
    if isinstance(value, bytes | bytearray | memoryview):
        # rclpy gives the field type byte as bytes of length one, rosbags as an int.
        return value[0] if len(value) == 1 else ArrayView(np.frombuffer(value, dtype=np.uint8))
    if isinstance(value, array.array):
        return ArrayView(np.asarray(value))
    if isinstance(value, list | tuple):
        return ArrayView(value)
    return MessageView(value)


def raw(value: object) -> object:
    """The message behind a view; anything else as it is."""
    return value._message if isinstance(value, MessageView) else value


def numbers(value: object) -> NDArray[Any] | None:
    """The array behind a sequence of numbers, without a copy where there is one.

    Returns:
        One-dimensional array of a numeric or Boolean type; None for any other sequence.
    """
    items = value._items if isinstance(value, ArrayView) else value
    if isinstance(items, list | tuple) and items:
        first = items[0]
        if isinstance(first, bytes):
            return np.frombuffer(b"".join(items), dtype=np.uint8)
        if not isinstance(first, bool | int | float | np.generic):
            return None
        items = np.asarray(items)
    elif isinstance(items, array.array):
        items = np.asarray(items)
    if isinstance(items, np.ndarray) and items.dtype.kind in "biuf":
        return items.reshape(-1)
    return None


def field_names(message: object) -> tuple[str, ...]:
    """Names of a message's fields in the order of its definition."""
    return tuple(_attributes(_class_of(message)))


def field_items(message: object) -> Iterator[tuple[str, object]]:
    """Names and normalised values of a message's fields."""
    behind = raw(message)
    for name, attribute in _attributes(_class_of(behind)).items():
        yield name, view(getattr(behind, attribute))


def type_name(message: object) -> str:
    """Type of a message as package/msg/Name; the class's name where it is not a message."""
    return _type_name(_class_of(message))


def _class_of(message: object) -> Any:
    return type(raw(message))


@functools.lru_cache(maxsize=4096)
def _type_name(cls: type) -> str:
    name = getattr(cls, "__msgtype__", None)
    if isinstance(name, str):
        return name
    parts = cls.__module__.split(".")
    if hasattr(cls, "get_fields_and_field_types") and len(parts) >= 2:
        return f"{parts[0]}/{parts[1]}/{cls.__name__}"
    return cls.__name__


@functools.lru_cache(maxsize=4096)
def _attributes(cls: type) -> Mapping[str, str]:
    """Field name to Python attribute; they differ where the name is a Python keyword.

    Raises:
        ViewError: The class is not a message.
    """
    if hasattr(cls, "get_fields_and_field_types"):
        return {name: name for name in cls.get_fields_and_field_types()}
    if dataclasses.is_dataclass(cls):
        # rosbags' generated classes hide their class variables' type from dataclasses.
        names = (
            field.name
            for field in dataclasses.fields(cls)
            if field.name != _EMPTY_MESSAGE_FIELD and "ClassVar" not in str(field.type)
        )
        return {name.removesuffix("_"): name for name in names}
    raise ViewError(f"is a {cls.__name__}; expected a message")
