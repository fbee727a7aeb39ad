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
"""Points the ROS 2 wheels' CMake files at this environment's headers.

They name two folders of the machine that built them, Python's headers and NumPy's, and CMake
stops at a folder that does not exist.
"""

import re
import sys
import sysconfig
from pathlib import Path

import numpy as np

FOREIGN_PYTHON = re.compile(r'/opt/python/[^;"]*?/include/python3\.\d+')
FOREIGN_NUMPY = re.compile(r'/opt/python/[^;"]*?/site-packages/numpy/[^;"]*?include')


def repair(text: str) -> str:
    """Return a CMake file's text with this environment's folders."""
    text = FOREIGN_NUMPY.sub(lambda _: np.get_include(), text)
    return FOREIGN_PYTHON.sub(lambda _: sysconfig.get_path("include"), text)


def main() -> None:
    """Repair the CMake files under the environment's share folder, in place."""
    for path in Path(sys.prefix, "share").glob("*/cmake/*.cmake"):
        text = path.read_text(encoding="utf-8")
        repaired = repair(text)
        if repaired != text:
            path.write_text(repaired, encoding="utf-8")


if __name__ == "__main__":
    main()
