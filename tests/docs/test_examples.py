"""The programs in examples/run do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compile

EXAMPLES = Path(__file__).parents[2] / "examples" / "run"
# The last line that each prints.
SAID = {
    "gemm.py": "C is 128 × 192, largest error",
    "torch_tensors.py": "torch.bfloat16, largest value",
    "verify_a_set.py": "all right",
    "missing_barrier.py": "without barrier, strict: WRONG",
}


def test_all_examples_are_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", sorted(SAID))
def test_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1].startswith(SAID[name])


def test_declare_build_run_takes_fifteen_lines() -> None:
    lines = [line for line in (EXAMPLES / "gemm.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 17  # with its docstring and the check of the result
