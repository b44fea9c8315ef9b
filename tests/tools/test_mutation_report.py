"""The report in docs/mutations.md."""

from __future__ import annotations

import ctypes
from datetime import date
from pathlib import Path

from tests.proof.mutating import argument_report
from tests.proof.mutating.arguments import BOUND, LARGER, SMALLER, SWAPPED, ZERO, Argument, ArgumentChange
from tests.proof.mutating.judge import MISSED, NOTICED, SAME, WITHIN, Outcome
from tests.proof.mutating.kernels import make_kernels
from tests.proof.mutating.reasons import HARMLESS, IDLE, ORDERED
from tests.proof.mutating.report import KernelReport, write_report

NAME = "gemm/standard"
CHANGES = {
    **{f"noticed {k}": Outcome(NOTICED, trial=k % 2) for k in range(6)},
    **{"missed": Outcome(MISSED, "m=5: wrong"), "same": Outcome(SAME)},
    **{"near": Outcome(WITHIN, "m=5, shape=(1, 2): other bits, within the tolerance", share=0.5)},
}


def found(changes: dict[str, Outcome], taken: dict[str, Outcome]) -> KernelReport:
    return KernelReport(NAME, make_kernels()[NAME], 1, changes, taken, 0, 3, 4, (), 9)


def test_a_change_within_the_tolerance_is_no_part_of_the_score() -> None:
    outcome = found(CHANGES, {})
    assert outcome.score == 6 / 7
    assert outcome.format_row().split(" | ")[1:7] == ["9", "6", "1", "1", "1", "85.7 %"]
    assert "| `near` | 0.500 | m=5, shape=(1, 2) |" in outcome.format_section(date(2026, 1, 2))


def test_a_barrier_needs_a_reason() -> None:
    """Other bits are as bad as wrong ones here: something came too early."""
    taken = {"a": Outcome(NOTICED), "b": Outcome(IDLE), "c": Outcome(ORDERED), "d": Outcome(ORDERED)}
    assert found({}, taken).unexplained == 0
    assert f"| {ORDERED} | 2 |" in found({}, taken).format_section(date(2026, 1, 2))
    for verdict in (SAME, WITHIN, MISSED):
        assert found({}, {**taken, "e": Outcome(verdict)}).unexplained == 1
    assert not {NOTICED, SAME, WITHIN, MISSED} & set(HARMLESS)


def test_the_table_has_a_cell_for_each_heading(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    for _ in range(2):  # the second time it is read, too
        write_report(path, [NAME], [found(CHANGES, {})], date(2026, 1, 2))
        table = [line for line in path.read_text().split("\n## ")[0].splitlines() if line.startswith("|")]
        assert len(table) == 3 and len({line.count("|") for line in table}) == 1


def make_argument_report(kind: str) -> argument_report.KindReport:
    q, k = (Argument(f"q.{name}", 8 * index, ctypes.c_int64) for index, name in enumerate(("row", "batch"), 1))
    report = argument_report.KindReport(kind)
    for unread in ([q, k], [k]):
        report.add_kernel(4, unread)
    report.add_outcome(ArgumentChange(q, SWAPPED, k), Outcome(NOTICED), "")
    report.add_outcome(ArgumentChange(q, LARGER), Outcome(NOTICED), "")
    report.add_outcome(ArgumentChange(q, SMALLER), Outcome(SAME), BOUND)
    report.add_outcome(ArgumentChange(k, ZERO), Outcome(MISSED, "m=5: wrong"), "")
    return report


def test_both_tables_keep_the_other(tmp_path: Path) -> None:
    path, today = tmp_path / "report.md", date(2026, 1, 2)
    write_report(path, [NAME], [found(CHANGES, {})], today)
    for kind in ("norm/rms", "fmha/forward"):
        argument_report.write_report(path, [make_argument_report(kind)], today)
    before = path.read_text()
    write_report(path, [NAME], [found(CHANGES, {})], today)
    argument_report.write_report(path, [make_argument_report("norm/rms")], today)
    assert path.read_text() == before
    rows, survivors = argument_report.read_report(path)
    assert list(rows) == ["fmha/forward", "norm/rms"]
    assert rows["norm/rms"][1:9] == ["2", "8", "3", "4", "2", "1", "1", "66.7 %"]
    assert [cells[1:] for cells in survivors["norm/rms"]] == [["q.row -1", BOUND], ["q.batch 0", "missed: m=5: wrong"]]
    assert "| `norm/rms` | q: batch | q: row |" in before
