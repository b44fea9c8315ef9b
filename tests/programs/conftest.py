"""HIP programs in C++, compiled once and started by `tilewright emulate`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hip_compile import ROOT, Run, compile_program


@pytest.fixture(scope="session")
def emulate() -> Run:
    """Run `tilewright emulate` with some words."""

    def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
        command = [sys.executable, "-m", "tilewright", "emulate", *map(str, words)]
        return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, timeout=300)

    return run


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compile a source of this folder once; return the program."""
    made: dict[str, Path] = {}

    def compile_once(name: str) -> Path:
        if name not in made:
            made[name] = compile_program(Path(__file__).with_name(name), tmp_path_factory.mktemp("programs"))
        return made[name]

    return compile_once
