"""The programs in examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from built_kernels import with_store

pytestmark = pytest.mark.compile

EXAMPLES = Path(__file__).parents[2] / "examples"
# The last line that each prints.
SAID = {
    "conv/backward_data.py": "grad_input is 2 × 12 × 12 × 2 × 16, largest error",
    "conv/backward_weight.py": "grad_weight is 2 × 24 × 3 × 3 × 16, largest error",
    "conv/forward.py": "output is 2 × 8 × 8 × 2 × 20, largest error",
    "fmha/decoding.py": "o is 2 × 1 × 2 × 64, largest error",
    "fmha/training.py": "largest errors o 0.0",
    "run/gemm.py": "C is 128 × 192, largest error",
    "run/torch_tensors.py": "torch.bfloat16, largest value",
    "run/verify_a_set.py": "all right",
    "run/missing_barrier.py": "without barrier, strict: WRONG",
    "sweep/emulated.py": "8 of 8 results are right",
    "sweep/winners.py": "measured 231 µs for exactly this problem",
}


# A package, written by `tilewright new-op`: see tests/codegen/test_op_folder.py and tests/compile/test_new_op.py.
PACKAGE = EXAMPLES / "rescale"


def test_all_examples_are_run() -> None:
    programs = [path for path in EXAMPLES.glob("**/*.py") if not path.is_relative_to(PACKAGE)]
    assert {path.relative_to(EXAMPLES).as_posix() for path in programs} == set(SAID)


# Those of which CI does not build the kernels.
DEEP = {"conv/backward_data.py", "conv/backward_weight.py", "fmha/training.py"}
CASES = [pytest.param(name, marks=pytest.mark.deep) if name in DEEP else name for name in sorted(SAID)]


@pytest.mark.parametrize("name", CASES)
def test_example(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=with_store())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1].startswith(SAID[name])


def test_declare_build_run_takes_fifteen_lines() -> None:
    lines = [line for line in (EXAMPLES / "run" / "gemm.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 17  # with its docstring and the check of the result
