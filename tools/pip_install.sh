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

# pip_install.sh PYTHON ARGUMENT...: pip install, with one line of progress instead of hundreds;
# the whole output is shown where pip fails.

set -euo pipefail

python=$1
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT

progress() {
    local line count=0 counting='' end=''
    # On a terminal the count stays on one line; in a log a line now and then will do.
    [[ -t 1 ]] && counting=$'\r' end=$'\r\e[K'
    while IFS= read -r line; do
        case $line in
            Collecting* | "Requirement already satisfied"*)
                count=$((count + 1))
                if [[ $counting ]]; then
                    printf '%s  %d packages looked at' "$counting" "$count"
                elif ((count % 100 == 0)); then
                    printf '  %d packages looked at\n' "$count"
                fi
                ;;
            "Installing collected packages"*)
                printf '%s  installing %d packages\n' "$end" "$(wc -w <<<"${line#*:}")"
                ;;
        esac
    done
    printf '%s' "$end"
}

if ! "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 |
    tee "$output" | progress; then
    tail -n 40 "$output" >&2
    if grep -q 'torch==.*+cpu' "$output"; then
        echo "csr_policy: pip finds no build of torch for the CPU alone (its version ends in" \
            "+cpu): put the address of PyTorch's index of CPU wheels into PIP_EXTRA_INDEX_URL" \
            "and run this again" >&2
    fi
    exit 1
fi
