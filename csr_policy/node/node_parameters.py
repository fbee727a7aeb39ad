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
"""The node's parameters: declared from the one table, read into frozen settings.

Used by the executor's thread. rclpy ignores overrides of undeclared names and turns
an empty list into bytes; both are handled here.
"""

from __future__ import annotations

from collections.abc import Iterator

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from csr_policy.parameters import (
    SOURCES,
    Parameter,
    SettingsError,
    observation_table,
    parameter_table,
    settings_from_parameters,
)
from csr_policy.settings import NAME_PATTERN, Settings

AUTOSTART = Parameter(
    "autostart", "bool", True, "Configure and activate the node when its process starts."
)
_OF_ROS = ("use_sim_time", "start_type_description_service", "qos_overrides.")


class NodeParameters:
    """Declares the parameters of a node and reads them at `configure`.

    A parameter can be set while the node is unconfigured; afterwards threads work with
    the frozen settings and a change is refused in one line.
    """

    def __init__(self, node: Node) -> None:
        """Declare every parameter, those of the configured observation sources too."""
        self._node = node
        self._frozen = False
        self._declare(AUTOSTART, AUTOSTART.name)
        for row in parameter_table():
            self._declare(row, row.name)
        self._declare_sources()
        node.add_on_set_parameters_callback(self._on_set)

    @property
    def autostart(self) -> bool:
        """Whether the process configures and activates its node by itself.

        Raises:
            SettingsError: The value is not a bool; one line.
        """
        value = self._node.get_parameter(AUTOSTART.name).value
        if not isinstance(value, bool):
            raise SettingsError(f"parameter 'autostart': is {value!r}; expected bool")
        return value

    def read(self) -> Settings:
        """Validate the present values.

        Raises:
            SettingsError: A name is unknown or a value out of range; one line.
        """
        self._declare_sources()
        values = self._overrides()
        for row in parameter_table():
            values[row.name] = self._value(row, row.name)
        for name, row in self._source_rows():
            values[name] = self._value(row, name)
            if values[name] is None:
                # Not given: the validation names it where there is no default.
                del values[name]
        return settings_from_parameters(values)

    def freeze(self, frozen: bool) -> None:
        """Refuse changes (True) or take them again (False)."""
        self._frozen = frozen

    def _declare_sources(self) -> None:
        for name, row in self._source_rows():
            if not self._node.has_parameter(name):
                self._declare(row, name)

    def _source_rows(self) -> Iterator[tuple[str, Parameter]]:
        names = self._node.get_parameter(SOURCES).value
        for name in names if isinstance(names, list) else ():
            # A name ROS would refuse is left to the validation, which says so in one line.
            if isinstance(name, str) and NAME_PATTERN.match(name):
                for row in observation_table():
                    yield f"observations.{name}.{row.name}", row

    def _declare(self, row: Parameter, name: str) -> None:
        descriptor = ParameterDescriptor(
            name=name,
            description=row.description,
            additional_constraints=f"{row.type} {row.range_text}".strip(),
            dynamic_typing=True,
        )
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        declared = self._node.declare_parameter(name, default, descriptor)
        if row.type == "string[]" and not declared.value:
            # An empty list would be an array of bytes to every tool that asks.
            empty = RosParameter(name, RosParameter.Type.STRING_ARRAY, [])
            self._node.set_parameters([empty])

    def _value(self, row: Parameter, name: str) -> object:
        value = self._node.get_parameter(name).value
        return [] if value is None and row.type == "string[]" else value

    def _overrides(self) -> dict[str, object]:
        # There is no public way to see an override that nothing declared.
        return {
            name: parameter.value
            for name, parameter in self._node._parameter_overrides.items()
            if name != AUTOSTART.name and not name.startswith(_OF_ROS)
        }

    def _on_set(self, parameters: list[RosParameter]) -> SetParametersResult:
        fixed = [p.name for p in parameters if not p.name.startswith(_OF_ROS)]
        if self._frozen and fixed:
            return SetParametersResult(
                successful=False,
                reason=f"parameter '{fixed[0]}': is fixed while the node is configured; "
                "clean the node up first",
            )
        return SetParametersResult(successful=True)
