#!/usr/bin/env bash
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

# make_venv.sh ENVIRONMENT FOLDER PYTHON OPTION...: create the virtual environment FOLDER where
# there is none that works. ENVIRONMENT names its kind and place; one of another kind is left
# alone and refused, since throwing it away is for its owner to say. An empty PYTHON takes the
# first of those known to work.

set -euo pipefail

environment=$1
folder=$2
python=$3
shift 3

# A name on the PATH proves nothing: version managers put up names that fail when they are run.
works() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
        >/dev/null 2>&1
}

if [[ -z $python ]]; then
    for candidate in python3.11 python3.12 python3; do
        if works "$candidate"; then
            python=$candidate
            break
        fi
    done
fi
if [[ -z $python ]] || ! works "$python"; then
    echo "csr_policy: found no Python 3.11 or 3.12 with the venv module (tried" \
        "${python:-python3.11, python3.12, python3}): install one, on Debian and Ubuntu with" \
        "apt-get install python3 python3-venv python3-dev, or name it: make PYTHON=/path" >&2
    exit 1
fi

stamp=$folder/stamps/python
if [[ -e $stamp && $(<"$stamp") != "$environment" ]]; then
    echo "csr_policy: $folder is of the kind '$(<"$stamp")', and this is '$environment':" \
        "source ROS 2 (or do not) as when it was made, or remove it: rm -r $folder" >&2
    exit 1
fi
if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "csr_policy: creating $folder with $("$python" --version)"
    "$python" -m venv --clear "$@" "$folder"
fi
"$(dirname "$0")/pip_install.sh" "$folder/bin/python" -r requirements/bootstrap.txt
mkdir -p "$folder/stamps"
echo "$environment" >"$stamp"
