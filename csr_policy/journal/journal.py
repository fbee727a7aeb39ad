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
"""SQLite journal of chunks and sequence versions.

A node that is killed starts again from here: replay the log, start at
`(s_k, head_k)`. One process owns a journal at a time; a second one is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from csr_policy.context.chunk import Chunk
from csr_policy.context.tokens import TokenIds, token_ids
from csr_policy.context.versions import SequenceVersion
from csr_policy.journal.schema import SCHEMA, SCHEMA_VERSION
from csr_policy.settings import JournalSettings, JournalSync

_PRIVATE = 0o600


class JournalError(RuntimeError):
    """The journal cannot be used: one line that names the file."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a journal holds.

    Attributes:
        epoch_ns: Stamp that the chunks' times count from; None for an empty journal.
        version: Where to start.
        chunks: `log[s_k : end]`, without gaps.
        end: Index of the next chunk.
    """

    epoch_ns: int | None
    version: SequenceVersion
    chunks: tuple[Chunk, ...]
    end: int


class Journal:
    """Chunks and versions on disk.

    Thread-safe: writes come from whichever thread appends, and from the reconciliation
    thread; an own lock serialises them. No state lock may be held during a call.
    """

    def __init__(self, settings: JournalSettings, identity: dict[str, str]) -> None:
        """Open or make the journal.

        Args:
            settings: Path (not empty), durability, resume.
            identity: What must not change between runs: tokenizer and prefix, as digests.

        Raises:
            JournalError: The file exists and `resume` is off, is owned by another process,
                is not a journal, or was made with another tokenizer or prefix.
        """
        path = Path(settings.path).expanduser()
        self._path = str(path)
        self._lock = threading.Lock()
        self._owner: IO[str] | None = _take_ownership(path)
        if not settings.resume and path.exists() and path.stat().st_size:
            self._release()
            raise JournalError(
                f"journal.path: {self._path!r} exists; "
                "expected journal.resume: true, or a new path"
            )
        try:
            self._db = _open(path, settings.sync)
            self._check_identity(identity)
        except (sqlite3.Error, OSError) as error:
            self._release()
            raise JournalError(f"journal.path: cannot use {self._path!r} ({error})") from error
        except JournalError:
            self._release()
            raise

    def append(self, chunk: Chunk) -> None:
        """Write a chunk; when this returns, the chunk survives what `journal.sync` says.

        Raises:
            JournalError: It could not be written (disk full, file gone); nothing was.
        """
        row = (
            chunk.index,
            chunk.stamp_ns,
            chunk.source,
            int(chunk.keep),
            chunk.text,
            _to_bytes(chunk.ids),
        )
        self._write("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)", row)

    def begin_version(self, version: SequenceVersion) -> None:
        """Write a version before it is used.

        Raises:
            JournalError: It could not be written; nothing was.
        """
        head = json.dumps([chunk.index for chunk in version.head])
        self._write(
            "INSERT OR REPLACE INTO versions VALUES (?, ?, ?)",
            (version.number, version.start, head),
        )

    def set_epoch(self, epoch_ns: int) -> None:
        """Write the stamp that the chunks' times count from.

        Raises:
            JournalError: It could not be written.
        """
        self._write("INSERT OR REPLACE INTO meta VALUES ('epoch_ns', ?)", (str(epoch_ns),))

    def recover(self) -> Recovered:
        """Read the newest version and its chunks.

        Raises:
            JournalError: The log has a gap or its rows cannot be read.
        """
        with self._lock:
            try:
                epoch = self._db.execute("SELECT value FROM meta WHERE key='epoch_ns'").fetchone()
                newest = self._db.execute(
                    "SELECT number, start, head FROM versions ORDER BY number DESC LIMIT 1"
                ).fetchone()
                number, start, head = newest or (0, 0, "[]")
                pinned = [self._chunk(index) for index in json.loads(head)]
                rows = self._db.execute(
                    "SELECT * FROM chunks WHERE idx >= ? ORDER BY idx", (start,)
                ).fetchall()
            except sqlite3.Error as error:
                raise JournalError(
                    f"journal.path: cannot read {self._path!r} ({error})"
                ) from error
        chunks = tuple(_to_chunk(row) for row in rows)
        for expected, chunk in enumerate(chunks, start):
            if chunk.index != expected:
                raise JournalError(f"journal.path: {self._path!r} lacks chunk {expected}")
        return Recovered(
            epoch_ns=int(epoch[0]) if epoch else None,
            version=SequenceVersion(number, start, tuple(pinned)),
            chunks=chunks,
            end=start + len(chunks),
        )

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterable[Chunk]:
        """Chunks from index `start` up to `stop`, oldest first; also those evicted long ago."""
        last = sys.maxsize if stop is None else stop
        with self._lock:
            rows = self._db.execute(
                "SELECT * FROM chunks WHERE idx >= ? AND idx < ? ORDER BY idx", (start, last)
            ).fetchall()
        return [_to_chunk(row) for row in rows]

    def close(self) -> None:
        """Close the file and give up ownership; may be called twice."""
        with self._lock:
            self._db.close()
        self._release()

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        with self._lock:
            try:
                self._db.execute(statement, values)
            except sqlite3.Error as error:
                raise JournalError(
                    f"journal.path: cannot write {self._path!r} ({error})"
                ) from error

    def _chunk(self, index: int) -> Chunk:
        row = self._db.execute("SELECT * FROM chunks WHERE idx = ?", (index,)).fetchone()
        if row is None:
            raise JournalError(f"journal.path: {self._path!r} lacks pinned chunk {index}")
        return _to_chunk(row)

    def _check_identity(self, identity: dict[str, str]) -> None:
        wanted = {"schema": str(SCHEMA_VERSION), **identity}
        for key, value in wanted.items():
            known = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            if known is None:
                self._db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))
            elif known[0] != value:
                self._db.close()
                raise JournalError(
                    f"journal.path: {self._path!r} was written with another {key}; "
                    "expected the same, or a new path"
                )

    def _release(self) -> None:
        if self._owner is not None:
            self._owner.close()
            self._owner = None


def _open(path: Path, sync: JournalSync) -> sqlite3.Connection:
    # Made before SQLite does, so that it is private from its first byte.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    level = "FULL" if sync is JournalSync.FULL else "NORMAL"
    db.execute(f"PRAGMA synchronous={level}")
    db.executescript(SCHEMA)
    return db


def _take_ownership(path: Path) -> IO[str]:
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Closed by Journal._release: the lock lives as long as the open file.
        owner = open(lock, "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise JournalError(
            f"journal.path: cannot write {str(path)!r} ({error.strerror})"
        ) from error
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner.close()
        raise JournalError(f"journal.path: {str(path)!r} is in use by another process") from None
    return owner


def _to_bytes(ids: TokenIds[int]) -> bytes:
    if sys.byteorder == "big":
        ids = token_ids(ids)
        ids.byteswap()
    return ids.tobytes()


def _to_chunk(row: tuple[int, int, str, int, str, bytes]) -> Chunk:
    index, stamp_ns, source, keep, text, blob = row
    ids = token_ids()
    ids.frombytes(blob)
    if sys.byteorder == "big":
        ids.byteswap()
    return Chunk(index, stamp_ns, source, bool(keep), text, ids)
