"""The same C expressions, compiled by the same compiler for a GPU and for the host, give the same bits.

Each expression is compiled twice for the GPU: with operands of its own in every lane, and with operands that all lanes
share, for which the compiler uses scalar instructions.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from differential_expressions import CASES, DECLARATIONS, TYPES, make_gpu_source
from edge_values import edge_values, same

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice, Module
from tilewright.emulator.launch import Extent, Launch
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

COUNT = 4096
SHARED = 96  # pairs of shared operands: each is a work-group of its own
ROUNDS = 24  # of the deep tests, with other operands
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
# One GPU of CDNA and of each generation of RDNA.
IN_CI = ("gfx950", "gfx1100", "gfx1201")
GPUS = [each if each in IN_CI else pytest.param(each, marks=pytest.mark.deep) for each in ARCHS]
# Parts of expressions whose results may differ from the host's, by how many units in the last place, and why.
_ZEROS = "C leaves the sign of the smaller or larger of two zeros open; the host gives the first"
KNOWN: dict[str, tuple[int, str]] = {"__builtin_fmin": (0, _ZEROS), "__builtin_fmax": (0, _ZEROS)}


def _size(kind: str) -> int:
    return TYPES[kind].itemsize * (2 if kind.endswith("2") else 1)


def _host_source() -> str:
    functions = [DECLARATIONS]
    for number, (kind, expression) in enumerate(CASES):
        functions.append(
            f"void k{number}(const {kind} *A, const {kind} *B, {kind} *O) {{\n"
            f"  for (int i = 0; i < {COUNT}; i++) {{ {kind} a = A[i], b = B[i]; O[i] = {expression}; }} }}"
        )
    return "\n".join(functions)


def _compile(folder: Path, name: str, source: str, *flags: str) -> Path:
    text, made = folder / f"{name}.c", folder / name
    text.write_text(source)
    command = ["clang-22", "-std=gnu11", "-O2", "-ffp-contract=off", *flags, str(text), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("differential")


@pytest.fixture(scope="module")
def host(folder: Path) -> ctypes.CDLL:
    flags = ("-shared", "-fPIC", "-march=x86-64-v3", "-lm", "-fwrapv", "-Xclang", "-ffloat16-excess-precision=none")
    return ctypes.CDLL(str(_compile(folder, "host.so", _host_source(), *flags)))


class Gpu:
    """An emulated GPU with all kernels loaded."""

    def __init__(self, arch: str, folder: Path) -> None:
        flags = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib", "-ffreestanding", "-fwrapv")
        code = _compile(folder, f"{arch}.co", make_gpu_source(), *flags).read_bytes()
        self.memory = Memory(1 << 24)
        self.device = EmulatedDevice(tilewright.arch.load(arch), self.memory)
        self.module: Module = self.device.load(code)
        room = COUNT * 8
        self.places = [self.memory.allocate(room, name) for name in ("A", "B", "O")]

    def run(self, number: int, sources: list[np.ndarray], *, shared: bool) -> bytes:
        for place, values in zip(self.places, sources, strict=False):
            self.memory.write(place, values.tobytes())
        arguments = b"".join(place.to_bytes(8, "little") for place in self.places)
        kernel = self.module.kernels[f"{'s' if shared else 'k'}{number}"]
        grid, block = (SHARED, 1) if shared else (COUNT // 64, 64)
        self.device.launch(kernel, Launch(Extent(grid), Extent(block), arguments))
        return self.memory.read(self.places[2], sources[0].nbytes)


@pytest.fixture(scope="module", params=GPUS)
def gpu(request: pytest.FixtureRequest, folder: Path) -> Gpu:
    return Gpu(request.param, folder)


def steps_apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many numbers of the type lie between two floats."""
    signed = f"i{a.itemsize}"
    least = np.iinfo(signed).min
    keys = [np.where(bits < 0, least - bits, bits) for bits in (a.view(signed), b.view(signed))]
    return np.abs(keys[0].astype(np.float64) - keys[1].astype(np.float64))


def test_there_are_enough_expressions() -> None:
    assert len(CASES) >= 150
    assert len(set(CASES)) == len(CASES)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rounds", [1, pytest.param(ROUNDS, marks=pytest.mark.deep)])
def test_results_are_those_of_the_host(gpu: Gpu, host: ctypes.CDLL, shared: bool, rounds: int) -> None:
    different = []
    for round_, (number, (kind, expression)) in itertools.product(range(rounds), enumerate(CASES)):
        per_element = _size(kind) // TYPES[kind].itemsize
        seed = zlib.crc32(f"{round_} {shared} {kind} {expression}".encode())  # other cases do not change it
        a, b = (edge_values(TYPES[kind], COUNT * per_element, seed + place) for place in (0, 1))
        want = np.zeros_like(a)
        host[f"k{number}"](*(values.ctypes.data_as(ctypes.c_void_p) for values in (a, b, want)))
        count = (SHARED if shared else COUNT) * per_element
        got = np.frombuffer(gpu.run(number, [a, b], shared=shared), a.dtype)[:count]
        want = want[:count]
        wrong = ~same(got, want)
        for part, (steps, _) in KNOWN.items():
            if part in expression:
                wrong &= steps_apart(got, want) > steps
        if wrong.any():
            at = np.flatnonzero(wrong)
            lanes = [(a[k], b[k], got[k], want[k]) for k in at[:2]]
            different.append(f"{kind}: {expression}: {len(at)} of {count}, a, b, GPU, host: {lanes}")
    assert not different, "\n" + "\n".join(different)
