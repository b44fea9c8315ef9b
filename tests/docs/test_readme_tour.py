"""The tour in README.md, executed from top to bottom in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fences import ROOT, Block, blocks, check_output, run_python

from built_kernels import STORE
from tilewright.arch.load import DATA
from tilewright.base import knobs
from tilewright.ops import OPS

README = ROOT / "README.md"
SECTIONS = ("A five-minute tour", "Sweep, tune, report")
TOUR = [
    block
    for block in blocks(README)
    if block.section in SECTIONS and block.language in ("python", "bash") and block.run
]


def follow(tour: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run blocks in order: those of Python in one namespace, those of bash each in a shell of its own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "tour"}
    for block in tour:
        printed = run_python(README, block, names) if block.language == "python" else in_bash(block)
        if block.shown:
            check_output(block.shown, printed)


def in_bash(block: Block) -> str:
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)

    assert done.returncode == block.exit_code, f"README.md:{block.line}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_tour_has_both_languages_and_shows_what_they_print() -> None:
    assert {block.language for block in TOUR} == {"python", "bash"}
    assert all(block.shown for block in TOUR if block.compiles)
    assert len([block for block in TOUR if block.shown]) >= 5


def test_the_readme_names_every_op_and_gpu() -> None:
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("|")]

    assert [op.name for op in OPS if not any(op.name in row.lower() for row in rows)] == []
    assert [path.stem for path in DATA.glob("*.toml") if not any(path.stem in row for row in rows)] == []


def test_the_tour_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.name, raising=False)

    follow([block for block in TOUR if not block.compiles], tmp_path, monkeypatch)


@pytest.mark.compile
def test_the_tour_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.STORE.name, str(STORE.root))
    follow(TOUR, tmp_path, monkeypatch)


THREE_LINES = [block for block in blocks(README) if block.section == "Three lines"]


@pytest.mark.compile
@pytest.mark.parametrize("empty", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_three_lines_compute_without_a_config(empty: bool, tmp_path: Path) -> None:
    (block,) = THREE_LINES
    store = tmp_path / "store" if empty else STORE.root
    surroundings = {**os.environ, knobs.STORE.name: str(store)}
    command = [sys.executable, "-c", block.text]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check_output(block.shown, done.stdout)
