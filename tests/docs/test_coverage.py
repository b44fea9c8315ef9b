"""The page about AMD's dispatcher: every row names a page and evidence that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coverage_page
from coverage_page import PAGE, VERDICTS, Row, list_faults, make_coverage_page, read_rows


def test_every_row_has_its_page_and_evidence() -> None:
    titles, rows = read_rows()
    assert list_faults(rows) == []
    assert len(rows) == 184
    assert {row.id[0] for row in rows} == set(titles)


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_coverage_page(), "run `make docs`"


def test_the_counts_are_at_the_top() -> None:
    _, rows = read_rows()
    head = make_coverage_page().partition("\n## ")[0]
    for verdict in VERDICTS:
        count = sum(row.verdict == verdict for row in rows)
        assert f"| {verdict} | {count} |" in head


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "perhaps"}, "unknown verdict 'perhaps'"),
        ({"page": "docs/nowhere.md"}, "docs/nowhere.md does not exist"),
        ({"shown": "tests/nowhere.py"}, "tests/nowhere.py does not exist"),
        ({"shown": f"tests/docs/{Path(__file__).name}::test_nothing"}, "has no test_nothing"),
        ({"shown": "make nothing"}, "the Makefile has no target of 'make nothing'"),
        ({"shown": ""}, "nothing shows it"),
        ({"verdict": "different"}, "the verdict different needs a note"),
    ],
)
def test_faults_are_found(changes: dict[str, str], said: str) -> None:
    right = {"id": "A1", "asked": "it", "verdict": "yes", "page": "docs/index.md", "shown": "make test"}
    assert list_faults([Row(**right)]) == []
    (fault,) = list_faults([Row(**{**right, **changes})])
    assert fault.startswith("A1: ") and said in fault


def test_rows_that_need_hardware_name_what_stands_in() -> None:
    _, rows = read_rows()
    assert [row.id for row in rows if row.verdict == "hardware" and not re.search(r"\bstands? in\b", row.note)] == []


def test_markdown_sees_no_emphasis() -> None:
    assert coverage_page._escape("*.hpp, __init__ and <name>") == r"\*.hpp, \_\_init\_\_ and \<name>"
