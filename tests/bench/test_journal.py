"""Journals: what is appended is read again, by whoever resumes, and by nobody twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from journalled import counted, failed, timed

from tilewright.base.errors import InvalidValueError, JournalError, UnknownValueError
from tilewright.bench.journal import FSYNC, Journal, list_journal_files, merge_records, read_journal, read_known_keys
from tilewright.bench.journal_lines import LONGEST, append_checksum

AWKWARD = 'a "quoted", {"counters":{ line\nwith ,"check":"00"} and µ \x00 and 😀'


@pytest.mark.parametrize("fsync", FSYNC)
def test_records_come_back_as_they_were(tmp_path: Path, fsync: str) -> None:
    records = [timed(1), counted(2, waves=4, valu=2**62), failed(3, message=AWKWARD), failed(4, "timeout")]
    with Journal(tmp_path, "gpu:0", fsync=fsync) as journal:
        for record in records:
            journal.append(record)
    found = read_journal(tmp_path)
    assert (found.records, found.damaged) == (records, [])
    assert journal.file == tmp_path / "gpu:0.jsonl"


def test_every_line_is_json_that_any_tool_reads(tmp_path: Path) -> None:
    with Journal(tmp_path, "w") as journal:
        journal.append(failed(message=AWKWARD))
    (line,) = journal.file.read_text().splitlines()
    value = json.loads(line)
    assert (value["status"], value["message"], value["task"]["kernel"]) == ("crashed", AWKWARD, "kernel-0")
    assert list(value)[-1] == "check"


def test_what_was_appended_is_there_before_the_journal_is_closed(tmp_path: Path) -> None:
    with Journal(tmp_path, "w", fsync="never") as journal:
        journal.append(timed(1))
        assert read_journal(tmp_path).records == [timed(1)]


def test_files_of_all_workers_are_read_in_order(tmp_path: Path) -> None:
    for worker, number in (("b", 1), ("a", 2), ("b", 3)):
        with Journal(tmp_path, worker) as journal:
            journal.append(timed(number))
    (tmp_path / "sweep.json").write_text("{}")
    assert [record.task.kernel for record in read_journal(tmp_path).records] == ["kernel-2", "kernel-1", "kernel-3"]
    assert read_journal(tmp_path / "b.jsonl").records == [timed(1), timed(3)]


def test_a_good_record_beats_failures_and_else_the_latest_counts() -> None:
    records = [failed(1, started=9), timed(1, us=5, started=2), timed(1, us=6, started=3), failed(2), timed(3)]
    for order in (records, records[::-1]):
        best = merge_records(order)
        expected = (timed(1, us=6, started=3), failed(2), timed(3))
        assert best == {record.key: record for record in expected}


def test_two_records_of_one_moment_are_merged_to_the_same_in_any_order() -> None:
    twins = [timed(us=5), timed(us=6)]
    assert merge_records(twins) == merge_records(twins[::-1])


def test_a_resumed_sweep_knows_what_is_done(tmp_path: Path) -> None:
    with Journal(tmp_path, "w") as journal:
        for record in (timed(1), failed(2), failed(3), timed(3), counted(4)):
            journal.append(record)
    done = {timed(1).key, timed(3).key, counted(4).key}
    assert read_known_keys(tmp_path) == done | {failed(2).key}
    assert read_known_keys(tmp_path, retry_failed=True) == done


def test_a_torn_line_costs_its_own_record_only(tmp_path: Path) -> None:
    with Journal(tmp_path, "w") as journal:
        journal.append(timed(1))
        journal.append(timed(2))
    journal.file.write_bytes(journal.file.read_bytes()[:-30])
    with Journal(tmp_path, "w") as journal:
        journal.append(timed(3))
    found = read_journal(tmp_path)
    assert found.records == [timed(1), timed(3)]
    (damage,) = found.damaged
    assert (damage.file, damage.line) == (journal.file, 2) and "cut short" in damage.why
    assert timed(2).key not in read_known_keys(tmp_path)


def test_a_record_of_another_schema_is_told(tmp_path: Path) -> None:
    """Its checksum is right, so nothing is damaged; still this version must not guess what it means."""
    body = json.dumps(timed(1).to_json() | {"schema": 2}, sort_keys=True, separators=(",", ":"))[:-1].encode()
    (tmp_path / "w.jsonl").write_bytes(append_checksum(body))
    found = read_journal(tmp_path)
    assert found.records == [] and "schema 2, this version reads 1" in found.damaged[0].why
    assert read_known_keys(tmp_path) == set()


def test_two_processes_cannot_write_one_file(tmp_path: Path) -> None:
    with Journal(tmp_path, "w"):
        with pytest.raises(JournalError, match="written by another process"):
            Journal(tmp_path, "w")
        Journal(tmp_path, "other").close()
    Journal(tmp_path, "w").close()


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UnknownValueError, match="Known: record, batch, never"):
        Journal(tmp_path, "w", fsync="sometimes")
    for name in ("../w", "", ".w", "a/b", "a\nb"):
        with pytest.raises(JournalError, match="cannot name"):
            Journal(tmp_path, name)
    with pytest.raises(JournalError, match="does not exist"):
        list_journal_files(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot be written: File exists"):
        Journal(tmp_path / "file", "w")
    journal = Journal(tmp_path, "w")
    with pytest.raises(InvalidValueError, match="shorten its message"):
        journal.append(failed(message="x" * LONGEST))
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.append(timed())
    assert read_journal(tmp_path).records == []


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from journalled import timed
from tilewright.bench.journal import Journal
journal = Journal(sys.argv[1], "w", fsync="never")
number = 0
while True:
    journal.append(timed(number))
    print(number, flush=True)
    number += 1
"""


def test_what_a_killed_writer_had_appended_is_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 50:
                process.kill()
                break
        acknowledged = max([50, *map(int, process.stdout.read().split())])
    found = read_journal(tmp_path)
    numbers = [int(record.task.kernel.removeprefix("kernel-")) for record in found.records]
    assert numbers == list(range(len(numbers))) and len(numbers) >= acknowledged + 1
    assert len(found.damaged) <= 1
    # The lock died with the process: a restart goes on in the same file.
    with Journal(tmp_path, "w") as journal:
        journal.append(timed(10**6))
    assert read_journal(tmp_path).records[-1] == timed(10**6)
