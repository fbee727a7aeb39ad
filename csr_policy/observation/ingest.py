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
"""One path from messages to observations, the same for live topics and for bags.

One thread, the node's ingest thread or the replay's loop, calls `offer` and `expired`;
any thread may read `counts`. Nothing here raises into that thread: a message that
cannot become a text is dropped, counted and reported once, and once more when the
source works again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from csr_policy.observation.source import ObservationSource
from csr_policy.settings import ObservationSettings, Placement, Settings

_WARN_AGAIN_AFTER_NS = 10_000_000_000
"""A source that fails on every other message must not fill the log."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A text that belongs in the prompt.

    Attributes:
        source: Name of the observation.
        text: What the model will read; one line. Empty only for a suffix, and then the
            source has nothing to say any more.
        placement: Chunk or suffix.
        stamp_ns: ROS time at which the message was received, or its time in the bag.
        keep: Pinned, as configured.
        max_tokens: Longest chunk of this source; 0 for the policy's default.
    """

    source: str
    text: str
    placement: Placement
    stamp_ns: int
    keep: bool = False
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the messages offered for one source; the fields sum to the messages.

    Attributes:
        taken: Became an observation.
        skipped_interval: Came sooner than the minimum interval.
        skipped_unchanged: Had the text of the last one taken.
        skipped_empty: The template wrote nothing.
        failed: The template failed.
    """

    taken: int = 0
    skipped_interval: int = 0
    skipped_unchanged: int = 0
    skipped_empty: int = 0
    failed: int = 0

    @property
    def skipped(self) -> int:
        """Messages left out on purpose."""
        return self.skipped_interval + self.skipped_unchanged + self.skipped_empty

    @property
    def offered(self) -> int:
        """All messages."""
        return self.taken + self.skipped + self.failed


@dataclass(slots=True)
class _Stream:
    source: ObservationSource
    counts: Counts = field(default_factory=Counts)
    failures_in_a_row: int = 0
    reported: bool = False
    """The present failures were reported, so their end must be too."""
    warned_ns: int | None = None
    shown_since_ns: int | None = None
    """Steady time at which the text in the suffix was last confirmed; None: none there."""

    @property
    def settings(self) -> ObservationSettings:
        return self.source.settings

    def count(self, name: str) -> None:
        # Replaced as a whole: a reader in another thread sees one state or the next.
        self.counts = replace(self.counts, **{name: getattr(self.counts, name) + 1})


class Ingest:
    """Turns offered messages into observations, by the settings of their source."""

    def __init__(self, settings: Settings, warn: Callable[[str], None] | None = None) -> None:
        """Compile the templates of all sources.

        Args:
            settings: The policy's settings; `observations` and `ingest` are used.
            warn: Takes one line when a source starts to fail or works again; None logs it.

        Raises:
            TemplateError: A template cannot be compiled; one line that names it.
        """
        self._warn = warn or logging.getLogger(__name__).warning
        self._strangers: dict[str, int] = {}
        limit = settings.ingest.max_text_characters
        self._streams = {
            name: _Stream(ObservationSource(observation, name, max_characters=limit))
            for name, observation in settings.observations.items()
        }

    def offer(
        self, source: str, message: object, *, ros_time_ns: int, steady_ns: int
    ) -> Observation | None:
        """Take one message, or count why it is not taken. Never raises.

        Args:
            source: Name of the observation.
            message: A message of rclpy or rosbags.
            ros_time_ns: When it was received (ROS time), or its time in the bag.
            steady_ns: The same moment on the steady clock; for a bag, its time in the bag.

        Returns:
            What belongs in the prompt, or None.
        """
        stream = self._streams.get(source)
        if stream is None:
            self._refuse_stranger(source)
            return None
        if not stream.source.is_due(ros_time_ns):
            stream.count("skipped_interval")
            return None
        try:
            text = stream.source.text(message)
        except Exception as error:
            # Whatever a message or a template does, the ingest thread outlives it.
            self._failed(stream, error, steady_ns)
            return None
        self._works(stream)
        return self._gated(stream, text, ros_time_ns, steady_ns)

    def expired(self, steady_ns: int) -> tuple[str, ...]:
        """Suffix sources whose text has become older than `max_age_s`, each told once.

        The caller takes their text out of the prompt. A text that arrives again
        unchanged is not old; one that comes after its expiry is taken again.
        """
        names = []
        for name, stream in self._streams.items():
            age_ns = round(stream.settings.max_age_s * 1e9)
            shown = stream.shown_since_ns
            if age_ns and shown is not None and steady_ns - shown > age_ns:
                stream.shown_since_ns = None
                stream.source.forget()
                names.append(name)
        return tuple(names)

    def counts(self, source: str) -> Counts:
        """What became of a source's messages; all failed where it is not configured."""
        stream = self._streams.get(source)
        return stream.counts if stream else Counts(failed=self._strangers.get(source, 0))

    def all_counts(self) -> Mapping[str, Counts]:
        """Counts by source, in the order they are configured."""
        return {name: stream.counts for name, stream in self._streams.items()}

    def _gated(
        self, stream: _Stream, text: str, ros_time_ns: int, steady_ns: int
    ) -> Observation | None:
        settings = stream.settings
        in_suffix = settings.placement is Placement.SUFFIX
        if not text and not (in_suffix and stream.shown_since_ns is not None):
            stream.count("skipped_empty")
            return None
        if not stream.source.is_change(text):
            stream.count("skipped_unchanged")
            if in_suffix and text:
                stream.shown_since_ns = steady_ns
            return None
        stream.source.took(text, ros_time_ns)
        stream.count("taken")
        if in_suffix:
            stream.shown_since_ns = steady_ns if text else None
        return Observation(
            source=stream.source.name,
            text=text,
            placement=settings.placement,
            stamp_ns=ros_time_ns,
            keep=settings.keep,
            max_tokens=settings.max_tokens,
        )

    def _refuse_stranger(self, source: str) -> None:
        if source not in self._strangers:
            self._warn(f"observation '{source}': is not configured; its messages are dropped")
        self._strangers[source] = self._strangers.get(source, 0) + 1

    def _failed(self, stream: _Stream, error: Exception, steady_ns: int) -> None:
        stream.count("failed")
        stream.failures_in_a_row += 1
        last_ns = stream.warned_ns
        quiet = last_ns is not None and 0 <= steady_ns - last_ns < _WARN_AGAIN_AFTER_NS
        if stream.failures_in_a_row == 1 and not quiet:
            stream.warned_ns = steady_ns
            stream.reported = True
            self._warn(
                f"observation '{stream.source.name}': {error}; "
                "such messages are dropped and counted until one works"
            )

    def _works(self, stream: _Stream) -> None:
        if stream.reported:
            stream.reported = False
            self._warn(
                f"observation '{stream.source.name}': works again after "
                f"{stream.failures_in_a_row} dropped messages"
            )
        stream.failures_in_a_row = 0
