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
"""One observation source: its template, and the gates a message passes to be taken.

Pure but for the gates' memory; used by one thread at a time.
"""

from __future__ import annotations

from csr_policy.observation.templates import (
    DEFAULT_MAX_CHARACTERS,
    TemplateError,
    compile_template,
    default_template,
)
from csr_policy.settings import ObservationSettings


class ObservationSource:
    """Turns the messages of one topic into texts, and skips what need not be one."""

    def __init__(
        self,
        settings: ObservationSettings,
        name: str,
        *,
        max_characters: int = DEFAULT_MAX_CHARACTERS,
    ) -> None:
        """Compile the template.

        Raises:
            TemplateError: It cannot be compiled; one line that names the parameter.
        """
        self.settings = settings
        self.name = name
        self._max_characters = max_characters
        self._min_interval_ns = round(settings.min_interval_s * 1e9)
        self._last_ns: int | None = None
        self._last_text: str | None = None
        try:
            self._template = (
                compile_template(settings.template)
                if settings.template.strip()
                else default_template(settings.type)
            )
        except TemplateError as error:
            raise TemplateError(f"observations.{name}.template: {error}") from error

    def text(self, message: object) -> str:
        """The text of a message; empty where the template writes nothing.

        Raises:
            TemplateError: The template fails on this message.
        """
        return self._template.render(message, self._max_characters)

    def is_due(self, ros_time_ns: int) -> bool:
        """True where the minimum interval since the last taken message is over.

        Time that runs backwards (a bag that starts again, a reset simulation) is a new
        start: what was taken in the future must not hold back the present.
        """
        if self._last_ns is None or ros_time_ns < self._last_ns:
            return True
        return ros_time_ns - self._last_ns >= self._min_interval_ns

    def is_change(self, text: str) -> bool:
        """True where the text must be taken: every text, unless only changes are asked for."""
        return not self.settings.on_change or text != self._last_text

    def took(self, text: str, ros_time_ns: int) -> None:
        """Remember what was taken, for the gates."""
        self._last_ns = ros_time_ns
        self._last_text = text

    def forget(self) -> None:
        """Open both gates: what was taken is no longer in the prompt."""
        self._last_ns = None
        self._last_text = None
