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
"""The journal's tables."""

from __future__ import annotations

SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS chunks (
    idx INTEGER PRIMARY KEY, stamp_ns INTEGER NOT NULL, source TEXT NOT NULL,
    keep INTEGER NOT NULL, text TEXT NOT NULL, ids BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS versions (
    number INTEGER PRIMARY KEY, start INTEGER NOT NULL, head TEXT NOT NULL);
"""
"""chunks: the log; ids are little-endian unsigned 32-bit.
versions: `(k, s_k, head_k)`; head is a JSON list of chunk indexes."""
