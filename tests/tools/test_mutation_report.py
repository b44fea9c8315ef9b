"""The report in docs/mutations.md."""

from __future__ import annotations

from datetime import date
from pathlib import Path

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
