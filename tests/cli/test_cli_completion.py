"""Completion of values, as a shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tilewright.cli.app import COMMANDS

MAIN = "from tilewright.cli import main; main()"


def complete(line: str) -> list[str]:
    """The values that bash offers at the end of a command line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TILEWRIGHT_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [value for kind, _, value in (each.partition(",") for each in done.stdout.splitlines()) if kind == "plain"]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("build gemm --gpu gfx9", ["gfx908", "gfx90a", "gfx942", "gfx950"]),
        ("arch show MI3", ["MI300X", "MI355X"]),
        ("space gemm --gpu gfx942,gfx95", ["gfx942,gfx950"]),
        ("verify gemm --device emulated:gfx94", ["emulated:gfx942"]),
        ("build gem", ["gemm", "gemm_quant"]),
        ("sweep fp16_rcr_ess", ["fp16_rcr_essential"]),
        ("select gemm --preselected fp16_rcr_ess", ["fp16_rcr_essential"]),
        ("check gemm -s pi", ["pipeline="]),
        ("check gemm -s pipeline=compv", ["pipeline=compv3", "pipeline=compv4", "pipeline=compv5", "pipeline=compv6"]),
        ("check fmha -s pipeline=compv", []),
        ("rules R40", ["R401"]),
        ("rules lds-o", ["lds-overflow"]),
        ("toolchain fetch-ck --tree 2025-0", ["2025-07"]),
    ],
)
def test_values(line: str, values: list[str]) -> None:
    assert complete(f"tilewright {line}") == values


def test_commands() -> None:
    assert complete("tilewright ") == list(COMMANDS)
