"""The programs in examples print what the gallery shows, and are short.

`pytest tests/docs/test_examples.py --update-golden` writes their output anew; then run `make docs`.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import runpy
import sys
from pathlib import Path

import pytest

from ci_kernels import STORE
from gallery_page import EXAMPLES, OUTPUTS, Example, list_examples
from tilewright.base import knobs

MOST_LINES = 60
# Examples that need no compiler. All others use the kernels of tests/ci_kernels.txt.
PURE = {
    *(each.name for each in list_examples() if each.topic == "select"),
    *("conv/gemm_inside.py", "fmha/splits.py", "fmha/stages.py", "fmha/tensors.py"),
    *("sweep/query.py", "sweep/tune_on_budget.py", "sweep/winners.py"),
}
# Those of which CI does not build the kernels.
DEEP = {"conv/backward_weight.py", "fmha/deterministic.py", "fmha/sinks.py", "gemm/bias_activation.py"}
# A search starts a process for each round.
SLOW = {"sweep/tune_on_budget.py"}
# Packages and programs in C and C++, which other tests build.
OTHERS = ("cpp", "pack", "rescale", "hip")


def list_marks(example: Example) -> list[pytest.MarkDecorator]:
    marks = [(DEEP, pytest.mark.deep), (SLOW, pytest.mark.slow)]
    return [mark for names, mark in marks if example.name in names]


def list_cases(*, pure: bool) -> list[object]:
    return [
        pytest.param(each, id=each.name, marks=list_marks(each))
        for each in list_examples()
        if (each.name in PURE) == pure
    ]


@pytest.mark.parametrize("example", list_cases(pure=True))
def test_example(
    example: Example, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_example(example, request, tmp_path, monkeypatch)


@pytest.mark.compile
@pytest.mark.parametrize("example", list_cases(pure=False))
def test_example_with_kernels(
    example: Example, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_example(example, request, tmp_path, monkeypatch)


def check_example(
    example: Example, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a program in this process: a new one for each would take longer than the programs."""
    for name in find_imports(example):
        pytest.importorskip(name)
    monkeypatch.setenv(knobs.STORE.name, str(STORE.root))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example.path)])
    printed = contextvars.Context().run(run_program, example.path)
    if request.config.getoption("--update-golden"):
        example.output.parent.mkdir(parents=True, exist_ok=True)
        example.output.write_text(printed, encoding="utf-8")
    assert printed == example.output.read_text(encoding="utf-8")


def run_program(path: Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(path), run_name="__main__")
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def find_imports(example: Example) -> list[str]:
    return [name for name in ("torch", "transformers", "triton") if f"\nimport {name}\n" in example.text]


def test_all_examples_are_run() -> None:
    programs = {path for path in EXAMPLES.rglob("*.py") if path.relative_to(EXAMPLES).parts[0] not in OTHERS}
    assert programs == {each.path for each in list_examples()}
    assert {each.output for each in list_examples()} == set(OUTPUTS.rglob("*.txt"))
    assert {each.name for each in list_examples()} >= DEEP | PURE


@pytest.mark.parametrize("example", list_examples(), ids=lambda each: each.name)
def test_examples_are_short_and_check_their_result(example: Example) -> None:
    lines = example.text.splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith('"""') and lines[0].endswith((".", '."""'))
    assert "print(" in example.text
    assert "assert" in example.text
    # It would change the options of the tests that follow in this process.
    assert "set_options" not in example.text


def test_titles_are_different() -> None:
    anchors = [each.anchor for each in list_examples()]
    assert len(anchors) == len(set(anchors))


def test_declare_build_run_takes_fifteen_lines() -> None:
    lines = [line for line in (EXAMPLES / "gemm" / "run.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 17  # with its docstring and the check of the result
