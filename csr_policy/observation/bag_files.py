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
"""Which files make up a bag, opened: unpacked where they are compressed.

rosbags is asked first; the plain scans take what it refuses. A file that cannot be read
at all is noted, and is an error only where no other can.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from csr_policy.observation.bag_metadata import METADATA_FILE, BagMetadata, read_metadata
from csr_policy.observation.bag_storage import BagError, RosbagsStorage, Storage
from csr_policy.observation.mcap_scan import McapScan, has_index
from csr_policy.observation.sqlite_scan import SqliteScan, has_unwritten_log

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PACKED_SUFFIX = ".zstd"
_SUFFIXES = (".mcap", ".db3")


@dataclass(frozen=True, slots=True)
class OpenedBag:
    """The open files of a bag.

    Attributes:
        storages: One for each file, in the order of recording.
        counts: Messages by topic and type of the metadata; None where there is none.
        unpack: What to do to a record's bytes before they are CDR.
        notes: What is missing or odd, one line each.
    """

    storages: tuple[Storage, ...]
    counts: Mapping[tuple[str, str], int] | None
    unpack: Callable[[bytes], bytes]
    notes: tuple[str, ...]


def open_files(path: Path, stack: contextlib.ExitStack) -> OpenedBag:
    """Open a bag's folder, or one file of it.

    Args:
        path: Folder, .mcap or .db3 file (also with .zstd), or a metadata.yaml.
        stack: Takes over closing the files and removing what was unpacked.

    Raises:
        BagError: There is no bag, or none of its files can be read; one line.
    """
    if path.name == METADATA_FILE:
        path = path.parent
    if not path.exists():
        raise BagError(f"{path}: does not exist; expected a rosbag2 folder")
    if path.suffix == ".bag":
        raise BagError(f"{path}: is a ROS 1 bag; expected rosbag2, convert with rosbags-convert")
    notes: list[str] = []
    metadata = None
    if path.is_dir():
        try:
            metadata = read_metadata(path)
        except BagError as error:
            notes.append(str(error))
        files = _files(path, metadata, notes)
    else:
        files = [path]
    if not files:
        raise BagError(f"{path}: holds no .mcap or .db3 file; expected a rosbag2 folder")
    storages = [
        storage
        for file in files
        if (storage := _open_noted(file, stack, notes, alone=len(files) == 1)) is not None
    ]
    if not storages:
        raise BagError(f"{path}: none of its files can be read ({notes[-1]})")
    packed = metadata is not None and metadata.compression == "message"
    unpack = zstd.decompress if packed else _as_it_is
    return OpenedBag(tuple(storages), metadata.counts if metadata else None, unpack, tuple(notes))


def _files(folder: Path, metadata: BagMetadata | None, notes: list[str]) -> list[Path]:
    """The storage files of a bag in the order of recording."""
    present = sorted(file for file in folder.iterdir() if _storage_suffix(file) in _SUFFIXES)
    if metadata is None:
        return present
    listed = [folder / name for name in metadata.files]
    existing = [file for file in listed if file.exists()]
    missing = [file.name for file in listed if not file.exists()]
    if missing and not existing and present:
        # The usual cause: the storage file was renamed by hand.
        names = ", ".join(file.name for file in present)
        notes.append(f"the metadata names {', '.join(missing)}, which is missing; {names} is read")
        return present
    if missing:
        notes.append(f"missing: {', '.join(missing)}; their messages are not read")
    if extra := [file.name for file in present if file not in listed]:
        notes.append(f"not in the metadata, left out: {', '.join(extra)}")
    return existing


def _storage_suffix(file: Path) -> str:
    return Path(file.stem).suffix if file.suffix == _PACKED_SUFFIX else file.suffix


def _open_noted(
    file: Path, stack: contextlib.ExitStack, notes: list[str], *, alone: bool
) -> Storage | None:
    try:
        storage = _open(_unpacked(file, stack))
    except (BagError, OSError) as error:
        line = str(error) if isinstance(error, BagError) else f"{file.name}: {error.strerror}"
        if alone:
            raise BagError(f"{file.parent}: {line}") from error
        notes.append(line)
        return None
    stack.callback(storage.close)
    if storage.content.note:
        notes.append(f"{file.name}: {storage.content.note}")
    return storage


def _unpacked(file: Path, stack: contextlib.ExitStack) -> Path:
    if file.suffix != _PACKED_SUFFIX:
        return file
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="csr_policy_bag_")))
    target = folder / file.stem
    try:
        with zstd.open(file, "rb") as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (zstd.ZstdError, EOFError) as error:
        raise BagError(f"{file.name}: cannot be unpacked ({error})") from error
    return target


def _open(file: Path) -> Storage:
    """Open one storage file with rosbags, or scan it where rosbags cannot."""
    if file.suffix == ".mcap":
        if not has_index(file):
            return McapScan(file)
        scan: type[McapScan] | type[SqliteScan] = McapScan
    elif file.suffix == ".db3":
        if has_unwritten_log(file):
            return SqliteScan(file)
        scan = SqliteScan
    else:
        raise BagError(f"{file.name}: is no bag; expected .mcap or .db3")
    try:
        return RosbagsStorage(file)
    except Exception:
        # rosbags refuses by many exceptions (assertions, key errors); the scan either
        # reads the file or says in one line why it cannot be read.
        return scan(file)


def _as_it_is(data: bytes) -> bytes:
    return data
