"""One HIP source at several optimisation levels on every emulated GPU: the results are those of the host.

Each level makes other instructions of the same source: unoptimised code keeps all variables in private memory and
calls all functions, optimised code has none of both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hip_compile import Run

from tilewright.arch import load
from tilewright.building.compile import compile_device
from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.hardware import EMULATED

pytestmark = pytest.mark.compile

LEVELS = ("-O0", "-O1", "-O3")
IN_CI = {("gfx942", "-O0"), ("gfx1201", "-O3")}
SOURCE = Path(__file__).with_name("levels.hip")


@pytest.mark.parametrize(
    ("gpu", "level"),
    [
        pytest.param(gpu, level, marks=() if (gpu, level) in IN_CI else pytest.mark.deep)
        for gpu in EMULATED
        for level in LEVELS
    ],
)
def test_results_are_those_of_the_host(
    emulate: Run, compiled: Callable[[str], Path], tmp_path: Path, gpu: str, level: str
) -> None:
    # The host's compiler does not join a product and a sum to one operation; the kernel's must not, either.
    flags = (level, "-ffp-contract=off")
    built = compile_device(
        SOURCE.read_text(), load(gpu), find_toolchain(with_ck=False), tmp_path / "levels.co", extra_flags=flags
    )
    assert built.ok, built.log
    for mode in ("fast", "strict"):
        done = emulate("--gpu", gpu, "--mode", mode, compiled(SOURCE.name), built.path)
        assert (done.stdout, done.returncode) == ("0 of 904 are wrong\n", 0), done.stderr
