"""A new op, from `tilewright new-op` to results that are verified on an emulated device."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from engine import PACKAGE_ROOT, environment

pytestmark = pytest.mark.compile

MOST_FILES = 6
MOST_LINES = 350
PROGRAMS = {
    "tilewright": [sys.executable, "-c", "from tilewright.cli import main; main()"],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
    # As `pip install --editable`, but into a folder of the test, and without an index.
    "pip": [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"],
}


def run(words: Sequence[str], surroundings: Mapping[str, str], folder: Path) -> str:
    """Run a command as in a shell; it must succeed."""
    command = [*PROGRAMS[words[0]], *words[1:]]
    done = subprocess.run(command, env=dict(surroundings), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_new_op_builds_runs_verifies_and_passes_its_tests(tmp_path: Path, ck: Path) -> None:
    site = tmp_path / "site"
    surroundings = environment(ck, tmp_path / "store", PYTHONPATH=f"{site}:{PACKAGE_ROOT}")
    created = json.loads(run(["tilewright", "new-op", "negate", "--json"], surroundings, tmp_path))
    texts = [(tmp_path / "negate" / path).read_text(encoding="utf-8") for path in created["files"]]
    assert len(texts) <= MOST_FILES
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES

    install, *following = [shlex.split(command) for command in created["next"]]
    assert install == ["pip", "install", "--editable", "./negate"]
    run(["pip", "--target", str(site), "./negate"], surroundings, tmp_path)
    assert [words[1] for words in following] == ["rules", "check", "build", "verify", "negate"]
    printed = {words[1]: run(words, surroundings, tmp_path) for words in following}

    assert "partial-wave" in printed["rules"] and "other-type" in printed["rules"]
    assert "\nlegal: 1 rule passed on gfx942." in printed["check"]
    assert "1 kernel in" in printed["build"]
    assert "all right: 5 problems on 1 kernel, emulated:gfx942" in printed["verify"]
    assert "5 passed" in printed["negate"]
