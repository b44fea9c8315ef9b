"""Commands in an installation without the extras say which are missing, before they do any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

import tilewright

EXTRAS = ("numpy", "ml_dtypes", "elftools", "torch")


def test_verify_names_the_extra(tmp_path: Path) -> None:
    """The packages of this environment but for the extras, in a Python that looks nowhere else."""
    for package in Path(click.__file__).parents[1].iterdir():
        if not package.name.startswith(EXTRAS):
            (tmp_path / package.name).symlink_to(package)
    source = Path(tilewright.__file__).parents[1]
    command = [sys.executable, "-S", "-m", "tilewright", "verify", "fp16_rcr_latency", "--device", "emulated:gfx942"]
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{source}", "TILEWRIGHT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=60, check=False)
    assert done.returncode != 0
    assert "verifying needs numpy, ml-dtypes, pyelftools" in done.stderr
    assert "pip install 'tilewright[emulator]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "cache").exists()
