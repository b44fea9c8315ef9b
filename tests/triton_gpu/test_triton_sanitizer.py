"""The sanitizer on Triton kernels: seeded bugs are reported with their Python lines, corrected kernels are silent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton is not installed: pip install 'tilewright[triton]'")

import numpy as np  # noqa: E402
import seeded_kernels as seeded  # noqa: E402
import triton_kernels  # noqa: E402

import tilewright.triton  # noqa: E402
from tilewright.base.errors import UnknownValueError  # noqa: E402
from tilewright.emulator import CheckFault, MemoryFault, TrapFault  # noqa: E402

pytestmark = pytest.mark.compile
SOURCE = Path(seeded.__file__)
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
BLOCK = 256

# Bugs by the mark of their lines: a function that launches the kernel, with or without the bug.
RACES: dict[str, Callable[[bool], object]] = {
    "race: reverse": lambda fixed: seeded.reverse_in_place[(1,)](torch.arange(BLOCK), BLOCK=BLOCK, FIXED=fixed),
    "race: total": lambda fixed: seeded.add_up[(4,)](torch.ones(4 * BLOCK), torch.zeros(1), BLOCK=BLOCK, FIXED=fixed),
    "race: overlap": lambda fixed: seeded.overlap[(3,)](
        torch.full((3 * BLOCK,), -1, dtype=torch.int32), BLOCK=BLOCK, FIXED=fixed
    ),
    "race: bins": lambda fixed: seeded.count[(2,)](
        torch.arange(2 * BLOCK) % 16, torch.zeros(16, dtype=torch.int32), BLOCK=BLOCK, FIXED=fixed
    ),
    "race: shift": lambda fixed: seeded.shift[(2,)](torch.arange(2 * BLOCK + 1), BLOCK=BLOCK, FIXED=fixed),
}
BOUNDS: dict[str, Callable[[bool], object]] = {
    "bounds: load": lambda fixed: seeded.copy_masked[(1,)](torch.ones(100), torch.ones(100), 100, BLOCK, fixed),
    "bounds: store": lambda fixed: seeded.fill_masked[(1,)](torch.zeros(99), 99, BLOCK, fixed),
    "bounds: next": lambda fixed: seeded.shift_left[(1,)](torch.ones(BLOCK), torch.zeros(BLOCK), BLOCK, fixed),
    "bounds: atomic": lambda fixed: seeded.count_masked[(1,)](torch.zeros(33, dtype=torch.int32), 33, BLOCK, fixed),
    "bounds: stride": lambda fixed: seeded.copy_rows[(2,)](
        torch.ones(2 * BLOCK), torch.ones(2 * BLOCK), BLOCK, BLOCK, fixed
    ),
}


def make_partly_written(fixed: bool) -> object:
    """Double a tensor of which a kernel has left out the last element."""
    x = torch.empty(BLOCK, dtype=torch.float16)
    seeded.fill_part[(1,)](x, BLOCK if fixed else BLOCK - 1, BLOCK)
    return seeded.double[(1,)](x, torch.zeros(BLOCK, dtype=torch.float16), BLOCK)


def make_copy(fixed: bool) -> object:
    """Double a copy of a tensor that nobody wrote."""
    x = torch.zeros(BLOCK) if fixed else torch.empty_like(torch.ones(BLOCK))
    return seeded.double[(1,)](x.clone(), torch.empty(BLOCK), BLOCK)


UNWRITTEN: dict[str, Callable[[bool], object]] = {
    "unwritten: double": lambda fixed: seeded.double[(1,)](
        torch.ones(BLOCK) if fixed else torch.empty(BLOCK), torch.empty(BLOCK), BLOCK
    ),
    "unwritten: double (part)": make_partly_written,
    "unwritten: double (copy)": make_copy,
    "unwritten: accumulate": lambda fixed: seeded.accumulate[(1,)](
        torch.ones(BLOCK), torch.zeros(BLOCK) if fixed else torch.ones(BLOCK).new_empty(BLOCK), BLOCK
    ),
}
BUGS = {**RACES, **BOUNDS, **UNWRITTEN}


def find_lines(mark: str) -> set[int]:
    text = mark.partition(" (")[0]
    return {number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if line.endswith(f"# {text}")}


@pytest.fixture(params=[each if each == "gfx942" else pytest.param(each, marks=pytest.mark.deep) for each in GPUS])
def gpu(request: pytest.FixtureRequest):
    with tilewright.triton.use(request.param, mode="strict", checks="all") as active:
        yield active


@pytest.mark.parametrize("mark", BUGS)
def test_bugs_are_reported_with_their_lines(gpu, mark: str) -> None:
    kind = CheckFault if mark not in BOUNDS else MemoryFault
    with pytest.raises(kind) as caught:
        BUGS[mark](False)
    if isinstance(caught.value, CheckFault):
        name = "race" if mark in RACES else "uninitialized-read"
        assert {each.name for each in caught.value.findings} == {name}, caught.value
        places = [place for each in caught.value.findings for place in each.places]
    else:
        places = [caught.value.place]
    assert {Path(place.source.file).name for place in places} == {SOURCE.name}
    assert {place.source.line for place in places} <= find_lines(mark), caught.value


@pytest.mark.parametrize("mark", BUGS)
def test_corrected_kernels_are_silent(gpu, mark: str) -> None:
    BUGS[mark](True)


def test_unwritten_tensors_are_written_by_anyone() -> None:
    with tilewright.triton.use("gfx942", checks="uninitialized") as active:
        assert active.checks == {"uninitialized"}
        by_numpy, by_torch, out = torch.empty(BLOCK), torch.empty(BLOCK), torch.empty(BLOCK)
        by_numpy.numpy()[:] = np.arange(BLOCK)
        torch.add(by_numpy, 1, out=by_torch)
        seeded.double[(1,)](by_torch, out, BLOCK)
        seeded.double[(1,)](out, by_numpy, BLOCK)
        assert torch.equal(by_numpy, 4 * (torch.arange(BLOCK) + 1.0))
    first = torch.empty(BLOCK)
    assert first.numpy().view(np.uint16)[0] != 0x7FA5 or not torch.equal(first, first)


def test_unknown_checks_are_errors() -> None:
    with pytest.raises(UnknownValueError, match="races"):
        tilewright.triton.use("gfx942", checks="race")


def test_kernels_print(capsys: pytest.CaptureFixture[str]) -> None:
    with tilewright.triton.use("gfx942", mode="strict"):
        triton_kernels.print_values[(2,)](torch.arange(128) * 0.5, BLOCK=64, num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    expected = [f"pid ({at // 64}, 0, 0) idx ({at % 64:2d}) half: {at * 0.5:f}" for at in range(128)]
    assert sorted(lines) == sorted(expected)


def test_assertions_tell_their_text_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    with tilewright.triton.use("gfx942", mode="strict", checks="all"):
        triton_kernels.assert_small[(1,)](torch.ones(64), BLOCK=64)
        with pytest.raises(TrapFault, match=r"device assertion failed: 'too large'(.|\n)*tl\.device_assert\(tl\.load"):
            triton_kernels.assert_small[(1,)](torch.full((64,), 9.0), BLOCK=64)
    assert "device assertion failed: 'too large'" in capsys.readouterr().err


def test_the_options_of_pytest_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import torch, seeded_kernels\n"
        "def test_it():\n    seeded_kernels.add_up[(4,)](torch.ones(1024), torch.zeros(1), BLOCK=256, FIXED=False)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[2] / "src"), str(SOURCE.parent)])
    command = [sys.executable, "-m", "pytest", "-p", "tilewright.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--triton-gpu=gfx942", "--triton-check=races", f"--rootdir={tmp_path}", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "triton: emulated gfx942, fast mode, checks: races" in done.stdout, done.stdout + done.stderr
    assert "CheckFault: check: race: 4 bytes" in done.stdout, done.stdout
