"""The commands in the quick starts run from top to bottom, and print what their pages show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fences import ROOT, Block, blocks, check_output

from built_kernels import with_store
from tilewright.base import knobs

PAGES = sorted([*ROOT.glob("docs/start/*.md"), ROOT / "docs" / "coming-from-ck.md"])


COMPILED = [page for page in PAGES if any(block.compiles and block.run for block in blocks(page))]


def list_cases() -> list[object]:
    """All pages. The commands of those in COMPILED run a second time with the compiler, in CI only then."""
    return [pytest.param(page, id=page.stem, marks=[pytest.mark.deep] if page in COMPILED else []) for page in PAGES]


@pytest.mark.parametrize("page", list_cases())
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.name, raising=False)
    run_commands(page, [block for block in blocks(page) if not block.compiles], tmp_path, dict(os.environ))


@pytest.mark.compile
@pytest.mark.parametrize("page", COMPILED, ids=lambda page: page.stem)
def test_commands_that_compile_run(page: Path, tmp_path: Path) -> None:
    if any("cmake -B" in block.text for block in blocks(page)) and shutil.which("cmake") is None:
        pytest.skip("no cmake")
    run_commands(page, blocks(page), tmp_path, with_store())


def run_commands(page: Path, found: list[Block], folder: Path, environment: dict[str, str]) -> None:
    """Write the files of a page and run its bash blocks, in order, each in its own shell, and compare their outputs."""
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    for block in found:
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        if block.language == "bash" and block.run:
            command = ["bash", "-euo", "pipefail", "-c", block.text]
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
            )
            assert done.returncode == block.exit_code, f"{page.name}:{block.line}: {done.stdout}{done.stderr}"
            if block.shown:
                check_output(block.shown, done.stdout)
