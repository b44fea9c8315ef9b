"""Commands in an installation without the extras say which are missing, before they do any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import tilewright

EXTRAS = ("numpy", "ml_dtypes", "elftools", "torch")


PROBLEM = ("--problem", "m=64,n=64,k=32")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("verify", "fp16_rcr_latency"), "verifying"),
        (("bench", "fp16_rcr_latency", *PROBLEM), "measuring"),
        (("sweep", "fp16_rcr_latency", *PROBLEM, "--out", "{folder}/swept"), "measuring"),
        (("sweep", "fp16_rcr_latency", *PROBLEM, "--out", "{folder}/swept", "--cluster", "local"), "measuring"),
    ],
)
def test_a_command_names_the_extra_before_it_works(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    """The packages of this environment but for the extras, in a Python that looks nowhere else."""
    for package in Path(click.__file__).parents[1].iterdir():
        if not package.name.startswith(EXTRAS):
            (tmp_path / package.name).symlink_to(package)
    source = Path(tilewright.__file__).parents[1]
    command = [sys.executable, "-S", "-m", "tilewright", *(word.format(folder=tmp_path) for word in words)]
    command += ["--device", "emulated:gfx942"]
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{source}", "TILEWRIGHT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=60, check=False)
    assert done.returncode != 0
    assert f"{what} needs numpy, ml-dtypes, pyelftools" in done.stderr
    assert "pip install 'tilewright[emulator]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "cache").exists() and not (tmp_path / "swept").exists()
