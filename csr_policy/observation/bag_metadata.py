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
"""The metadata.yaml of a rosbag2 folder. Pure but for reading the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from csr_policy.observation.bag_storage import BagError

METADATA_FILE = "metadata.yaml"


@dataclass(frozen=True, slots=True)
class BagMetadata:
    """What the recorder wrote about the bag.

    Attributes:
        files: Names of the storage files, in the order of recording.
        compression: `file`, `message` or empty.
        counts: Messages by topic and type, in the file's order.
    """

    files: tuple[str, ...]
    compression: str
    counts: dict[tuple[str, str], int]


def read_metadata(folder: Path) -> BagMetadata:
    """Read the metadata of a bag.

    Raises:
        BagError: It is missing or is not rosbag2's; one line.
    """
    file = folder / METADATA_FILE
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        information = document["rosbag2_bagfile_information"]
        counts: dict[tuple[str, str], int] = {}
        for item in information["topics_with_message_count"]:
            key = _key(item["topic_metadata"])
            counts[key] = counts.get(key, 0) + int(item["message_count"])
        files = tuple(PurePosixPath(str(name)).name for name in information["relative_file_paths"])
        compression = str(information.get("compression_mode") or "").lower()
    except FileNotFoundError:
        raise BagError(f"{METADATA_FILE} is missing") from None
    except OSError as error:
        raise BagError(f"{METADATA_FILE} cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        detail = " ".join(str(error).split())[:120]
        raise BagError(f"{METADATA_FILE} is not YAML ({detail})") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BagError(f"{METADATA_FILE} is not rosbag2's ({error!r})") from error
    return BagMetadata(files, "" if compression == "none" else compression, counts)


def _key(topic: dict[str, Any]) -> tuple[str, str]:
    return str(topic["name"]), str(topic["type"])
