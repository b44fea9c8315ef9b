"""Tests with pytest: the program passes, and its launches are as expected. `pytest check_launches.py`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = os.environ.get("TEST_REDUCE", "build/test_reduce")


@pytest.mark.parametrize("count", [1, 255, 1000])
def test_sums(count: int, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    emulate = ["tilewright", "emulate", "--gpu", "gfx942", "--mode", "strict", "--report", str(report), "--"]
    subprocess.run([*emulate, PROGRAM, str(count)], check=True)
    said = json.loads(report.read_text())
    (kernel,) = said["kernels"]
    assert said["errors"] == said["not_freed"] == []
    assert kernel["launches"] == 1
    assert kernel["counters"]["global_write_bytes"] == 4 * -(-count // 256)
