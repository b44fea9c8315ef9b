"""Each argument of each public function that needs no device, replaced by nonsense: every exception is one of ours.

Functions for arrays are in tests/functions/test_nonsense.py.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from nonsense import NONSENSE, list_foreign_errors
from tilewright.base.errors import TilewrightError

CONFIG = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1), mma=(16, 16, 16),
    pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
PROBLEM = tw.gemm.Problem(m=64, n=64, k=64, dtype="fp16", layout="rcr")
KERNEL = tw.kernel_of(CONFIG, "gfx942")
RIGHT: dict[str, dict[str, Any]] = {
    "build": {"kernels": [], "arch": "gfx942"},
    "explain": {"config": CONFIG, "arch": "gfx942"},
    "fits": {"config": CONFIG, "problem": PROBLEM, "arch": "gfx942"},
    "generate": {"kernels": [], "folder": "sources", "arch": "gfx942"},
    "kernel_of": {"config": CONFIG, "arch": "gfx942"},
    "kernels": {"op": "gemm", "gpu": "gfx942"},
    "load": {"name": "gfx942"},
    "load_kernel_set": {"path": "set.toml"},
    "measure": {"kernel": None, "problem": PROBLEM, "device": "emulated:gfx942"},
    "pack": {"registry": None, "folder": "pack"},
    "parse_kernel": {"slug": KERNEL.slug},
    "read_problems": {"op": "gemm", "path": "problems.csv"},
    "render": {"kernel": KERNEL},
    "select_kernel": {"problem": PROBLEM, "gpu": "gfx942"},
    "sets": {"op": "gemm", "gpu": "gfx942"},
    "suggest": {"config": CONFIG, "arch": "gfx942"},
    "sweep": {"kernels": [], "problems": [PROBLEM], "device": "emulated:gfx942", "out": "table"},
    "time_plan": {"registry": None, "problem": PROBLEM, "device": "emulated:gfx942"},
    "tune": {"kernels": [], "problems": [PROBLEM], "device": "emulated:gfx942", "budget": "1s"},
    "verify": {"kernel": KERNEL, "artifact": None, "device": None, "problems": [PROBLEM]},
    "warm": {"problems": [], "device": "gfx942"},
    "wrap": {"kernel_dir": "missing", "folder": "wrapped", "systems": ["ninja"]},
}
WITHOUT = {
    *("arch_names", "devices", "list_used_kernels"),  # no arguments
    *("options", "set_options"),  # see below
    "inspect_kernel",  # it would compile a kernel; its one argument is that of `render`
    "view_on",  # see below
}


def test_all_functions_without_arrays_are_tested() -> None:
    functions = {name: getattr(tw, name) for name in tw.__all__ if inspect.isfunction(getattr(tw, name))}
    for_arrays = {name for name, each in functions.items() if "stream" in inspect.signature(each).parameters}
    assert set(functions) - for_arrays == set(RIGHT) | WITHOUT


@pytest.mark.parametrize("name", RIGHT)
def test_nonsense_raises_our_errors(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = getattr(tw, name)
    named = [each.name for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    foreign = list_foreign_errors(function, RIGHT[name], named)
    assert not foreign, "\n".join(foreign)


@pytest.mark.parametrize("name", ["device", "pool", "tuned", "build", "verify", "unknown"])
def test_nonsense_as_an_option_raises_our_errors(name: str) -> None:
    for value in NONSENSE:
        try:
            with tw.options(**{name: value}):
                pass
        except TilewrightError as error:
            assert str(error)


@pytest.mark.compile
def test_nonsense_for_a_view_raises_our_errors() -> None:
    right = {"buffer": tw.Device("emulated:gfx942").allocate(64), "shape": (4,), "dtype": "fp32", "strides": (2,)}
    tw.view_on(**right)
    assert list_foreign_errors(tw.view_on, right, right) == []
