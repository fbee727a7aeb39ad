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
"""The journal: what was acknowledged is there again, and nothing else is taken for it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from csr_policy.context.chunk import Chunk
from csr_policy.context.tokens import token_ids
from csr_policy.context.versions import SequenceVersion
from csr_policy.journal import Journal, JournalError
from csr_policy.settings import JournalSettings, JournalSync

IDENTITY = {"tokenizer": "t", "prefix": "p"}


def chunk(index: int, keep: bool = False) -> Chunk:
    return Chunk(index, index * 10, "odom", keep, f"text {index}", token_ids([index, 7]))


def opened(path: Path, resume: bool = False, **identity: str) -> Journal:
    settings = JournalSettings(path=str(path), resume=resume)
    return Journal(settings, {**IDENTITY, **identity})


def test_an_empty_journal_starts_at_version_0(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j.db")
    found = journal.recover()
    assert (found.epoch_ns, found.version, found.chunks, found.end) == (
        None,
        SequenceVersion(0, 0),
        (),
        0,
    )
    journal.close()


@pytest.mark.parametrize("sync", list(JournalSync))
def test_chunks_and_version_come_back(tmp_path: Path, sync: JournalSync) -> None:
    path = tmp_path / "j.db"
    journal = Journal(JournalSettings(path=str(path), sync=sync), IDENTITY)
    journal.set_epoch(5)
    for index in range(6):
        journal.append(chunk(index, keep=index == 1))
    journal.begin_version(SequenceVersion(1, 3, (chunk(1, keep=True),)))
    journal.close()
    again = opened(path, resume=True)
    found = again.recover()
    assert found.epoch_ns == 5
    assert found.version == SequenceVersion(1, 3, (chunk(1, keep=True),))
    assert found.chunks == tuple(chunk(index) for index in (3, 4, 5))
    assert found.end == 6
    assert list(again.chunks(0, 2)) == [chunk(0), chunk(1, keep=True)]
    again.close()


def test_an_existing_journal_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = opened(path)
    journal.append(chunk(0))
    journal.close()
    with pytest.raises(JournalError, match=r"exists; expected journal\.resume: true"):
        opened(path)


@pytest.mark.parametrize("what", ["tokenizer", "prefix"])
def test_another_tokenizer_or_prefix_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "j.db"
    opened(path).close()
    with pytest.raises(JournalError, match=f"was written with another {what}"):
        opened(path, resume=True, **{what: "other"})
    opened(path, resume=True).close()  # the refusal changed nothing, and let go of the file


def test_two_owners_are_refused(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j.db")
    with pytest.raises(JournalError, match="in use by another process"):
        opened(tmp_path / "j.db", resume=True)
    journal.close()
    opened(tmp_path / "j.db", resume=True).close()


def test_a_gap_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = opened(path)
    for index in range(4):
        journal.append(chunk(index))
    journal.close()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM chunks WHERE idx = 2")
    journal = opened(path, resume=True)
    with pytest.raises(JournalError, match="lacks chunk 2"):
        journal.recover()
    journal.close()


def test_a_file_that_is_no_journal_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_text("this is not a database, and long enough to be looked at" * 50)
    with pytest.raises(JournalError, match="cannot use") as caught:
        opened(path, resume=True)
    assert "\n" not in str(caught.value)


def test_the_journal_is_private(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    opened(path).close()
    assert path.stat().st_mode & 0o077 == 0


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    script = (
        "import sys\n"
        "from csr_policy.context.chunk import Chunk\n"
        "from csr_policy.context.tokens import token_ids\n"
        "from csr_policy.journal import Journal\n"
        "from csr_policy.settings import JournalSettings\n"
        "j = Journal(JournalSettings(path=sys.argv[1]), {'tokenizer': 't', 'prefix': 'p'})\n"
        "i = 0\n"
        "while True:\n"
        "    j.append(Chunk(i, 0, 's', False, 'x', token_ids([i])))\n"
        "    print(i, flush=True)\n"
        "    i += 1\n"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    acknowledged = -1
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged >= 50:
            process.send_signal(signal.SIGKILL)
            break
    rest = process.stdout.read().split()
    process.wait(30)
    acknowledged = int(rest[-1]) if rest and rest[-1].isdigit() else acknowledged
    journal = opened(path, resume=True)
    assert journal.recover().end > acknowledged - 1
    assert [c.index for c in journal.recover().chunks][: acknowledged + 1] == list(
        range(acknowledged + 1)
    )
    journal.close()
