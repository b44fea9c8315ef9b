"""Disks of a few MB that tests fill, make read-only, or take away. They are mounted, so only root has them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_disk(folder: Path, options: str) -> Iterator[Path]:
    """Mount a disk at a new folder inside the `with` block; skip the test where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    # Lazily: a library that this process has loaded from there keeps it busy.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    with mount_disk(tmp_path / "disk", "size=1m") as disk:
        yield disk
