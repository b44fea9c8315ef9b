"""The table of `research/evaluate.py`: targets, JSON, and what is printed."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from research import evaluate
from research.table import Correlation, Line, Remark, Target
from tilewright.base.errors import UnknownValueError
from tilewright.learn.efficiency import Efficiency

GOOD = Efficiency(mean=0.97, median=1.0, p10=0.921, minimum=0.5, top1=0.3, top5=0.8, problems=1234)


def test_a_target_is_reached_by_all_of_its_figures() -> None:
    target = Target({"mean": 0.965, "p10": 0.92})
    assert target.text == "mean ≥ 96.5, P10 ≥ 92"
    assert target.line("data", "split", "method", GOOD).reached is True
    assert Target({"mean": 0.965, "p10": 0.93}).line("data", "split", "method", GOOD).reached is False
    assert Target({"rank": 0.9}).line("data", "split", "method", Correlation(0.89, 7)).reached is False


def test_what_is_printed() -> None:
    lines = [
        Line("some data", "by problem", "random", GOOD),
        Target({"mean": 0.99}).line("some data", "by problem", "trees", GOOD),
        Target({"rank": 0.9}).line("winners", "none", "estimate", Correlation(0.985, 57671)),
        Remark("left out", ("what", "how many"), (("broken rows", "12"),)),
    ]
    out = io.StringIO()
    evaluate.print_tables(lines, Console(file=out, width=200))
    text = out.getvalue()
    assert "97.0" in text and "1,234" in text and "rank 0.985" in text
    assert text.count("✓") == 1 and text.count("✗") == 1
    assert "left out" in text and "broken rows" in text
    stored = json.loads(json.dumps(evaluate.to_json(lines)))
    assert stored["lines"][1]["reached"] is False
    assert stored["lines"][0]["result"]["p10"] == 0.921
    assert stored["remarks"][0]["rows"] == [["broken rows", "12"]]


def test_the_table_in_markdown() -> None:
    lines = [
        Line("d", "s", "one", GOOD),
        Target({"mean": 0.96}).line("d", "s", "two", GOOD),
        Line("e", "s", "one", GOOD),
    ]
    head, rule, *rows = evaluate.format_markdown(lines).splitlines()
    assert {text.count("|") for text in (head, rule, *rows)} == {12}
    assert rows[0] == "| d | s | one | 97.0 | 100.0 | 92.1 | 50.0 | 30.0 | 80.0 | 1,234 |  |"
    assert rows[1].startswith("|  |  | two |") and rows[1].endswith("mean ≥ 96 ✓ |")
    assert rows[2].startswith("| e | s | one |")


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(UnknownValueError, match="hipblaslt"):
        evaluate.main(["hipblas"])
