"""Proofs that take long: programs that compare rules, verification and results with compiler and emulated device."""

import sys
from pathlib import Path

# The modules of tests and tools are imported by their names, as pytest's `pythonpath` allows tests to do.
_ROOT = Path(__file__).parents[2]
sys.path += [str(folder) for folder in (_ROOT / "tests", _ROOT / "tools") if str(folder) not in sys.path]
