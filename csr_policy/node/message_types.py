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
"""Message classes by name; rosidl_runtime_py, which does this elsewhere, may be absent."""

from __future__ import annotations

import importlib


def message_class(type_name: str) -> type:
    """Import the class of `package/msg/Name` or `package/Name`.

    Raises:
        ValueError: There is no such message type here; one line.
    """
    package, _, rest = type_name.partition("/")
    name = rest.removeprefix("msg/")
    try:
        found = getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not isinstance(found, type) or not hasattr(found, "get_fields_and_field_types"):
        raise ValueError(
            f"is {type_name!r}; expected package/msg/Name of a message type installed here"
        )
    return found
