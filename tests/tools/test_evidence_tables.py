"""The committed tables of evidence cover every op and kind: a new one must not be forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci_kernels import read_samples
from ck_trees import NEWER
from tests.proof.mutating import argument_report
from tests.proof.mutating.kernels import get_kind, list_kinds, make_kernels
from tests.proof.mutating.report import GOAL, read_report
from tests.proof.op_sections import name_section, read_sections
from tilewright.ops import OPS

DOCS = Path(__file__).parents[2] / "docs"
GENERATION = NEWER.rpartition("-")[0]  # a generation is named after its month

# What a table lacks, each with the reason. Remove a line when its row or section is there: the tests ask for it.
KINDS_WITHOUT_KERNEL: dict[str, str] = {}
_TIME = "not run yet: its trials and larger problems take minutes; other kinds of scales have a row"
KERNELS_WITHOUT_ROW: dict[str, str] = {
    **{f"gemm_quant/{quant}": _TIME for quant in ("rowcol", "b1x128", "b128x128", f"a1x128_b128x128@{NEWER}")}
}
_NEWER = "its kernels need newer headers than those that CI's list is for"
KINDS_WITHOUT_ARGUMENTS = {"gemm_quant/a1x128_b128x128": _NEWER}
SECTIONS_WITHOUT_TABLE: dict[str, dict[str, str]] = {"verified.md": {}, "truth.md": {}}


def list_sections() -> set[str]:
    """One of each op, and one for each op that has kernels for the newer CK tree only."""
    newer = {kernel.op for _, kernel in read_samples(NEWER)}
    return {op.name for op in OPS} | {name_section(op, GENERATION) for op in newer}


def test_a_kernel_of_every_op_and_kind_is_mutated() -> None:
    covered = {get_kind(kernel) for kernel in make_kernels().values()}
    assert list_kinds() - covered == set(KINDS_WITHOUT_KERNEL)


def test_the_table_of_mutations_has_a_row_for_every_kernel() -> None:
    rows, sections = read_report(DOCS / "mutations.md")
    kernels = make_kernels()
    assert set(kernels) - set(rows) == set(KERNELS_WITHOUT_ROW)
    assert set(rows) <= set(kernels) and set(rows) == set(sections)
    others = [name for name in rows if f"\n{kernels[name].slug}\n" not in sections[name]]
    assert others == [], "the row is about another kernel than the one that `make mutations` mutates"


def test_every_row_of_mutations_reaches_the_goal() -> None:
    rows, _ = read_report(DOCS / "mutations.md")
    for name, row in rows.items():
        cells = [cell.strip() for cell in row.strip("| ").split("|")]
        noticed, missed = int(cells[2]), int(cells[5])
        assert noticed / (noticed + missed) >= GOAL, name
        assert int(cells[-1]) == 0, f"a barrier or wait of {name} that is needed was removed, and no trial noticed it"


def test_arguments_of_every_kind_are_changed() -> None:
    rows, _ = argument_report.read_report(DOCS / "mutations.md")
    assert list_kinds() - set(rows) == set(KINDS_WITHOUT_ARGUMENTS)


def test_every_changed_argument_is_noticed_or_has_a_reason() -> None:
    rows, survivors = argument_report.read_report(DOCS / "mutations.md")
    for kind, cells in rows.items():
        noticed, missed = int(cells[5]), int(cells[7])
        assert noticed / (noticed + missed) >= argument_report.GOAL, kind
    assert [cells for rows in survivors.values() for cells in rows if not cells[2]] == []


@pytest.mark.parametrize("document", SECTIONS_WITHOUT_TABLE)
def test_every_op_has_a_section_for_each_tree_that_it_has_kernels_for(document: str) -> None:
    sections = read_sections(DOCS / document)
    assert list_sections() - set(sections) == set(SECTIONS_WITHOUT_TABLE[document])


@pytest.mark.parametrize("document", SECTIONS_WITHOUT_TABLE)
def test_a_section_has_rows(document: str) -> None:
    for name, text in read_sections(DOCS / document).items():
        assert "\n| gfx" in text, f"{name} in {document}"
