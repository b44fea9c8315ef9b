"""The compiler's own functions for AMD GPUs do what the same in plain C does on the host."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from builtin_expressions import COUNT, STATEMENTS, make_gpu_source, make_host_source
from edge_values import edge_values, same

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
ELEMENTS = {"uint32_t": (np.uint32, 1), "half2": (np.float16, 2), "float2": (np.float32, 2)}
ROUNDS = 24


def compile_source(source: str, target: Path, *flags: str) -> Path:
    text = target.with_suffix(".c")
    text.write_text(source)
    command = ["clang-22", "-std=gnu11", "-O2", "-ffp-contract=off", "-fwrapv", *flags, str(text), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("host") / "host.so"
    flags = ("-shared", "-fPIC", "-march=x86-64-v3", "-lm", "-Xclang", "-ffloat16-excess-precision=none")
    return ctypes.CDLL(str(compile_source(make_host_source(), target, *flags)))


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("rounds", [1, pytest.param(ROUNDS, marks=pytest.mark.deep)])
def test_results_are_those_of_the_host(gpu: str, rounds: int, host: ctypes.CDLL, tmp_path: Path) -> None:
    flags = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={gpu}", "-nogpulib", "-ffreestanding")
    code = compile_source(make_gpu_source(gpu), tmp_path / "kernels.co", *flags).read_bytes()
    memory = Memory(1 << 22)
    device = EmulatedDevice(tilewright.arch.load(gpu), memory)
    module = device.load(code)
    places = {}
    seen = 0
    for round_ in range(rounds):
        for number, statement in enumerate(STATEMENTS):
            if gpu not in statement.gpus:
                continue
            kind, parts = ELEMENTS[statement.kind]
            a, b = (edge_values(np.dtype(kind), COUNT * parts, 2 * (number + 100 * round_) + k) for k in (0, 1))
            want = b.copy()
            host[f"b{number}"](*(values.ctypes.data_as(ctypes.c_void_p) for values in (a, b, want)))
            if a.nbytes not in places:
                places[a.nbytes] = [memory.allocate(a.nbytes, name) for name in "ABO"]
            for mode in (Mode.FAST, Mode.STRICT):
                for place, values in zip(places[a.nbytes], (a, b, b), strict=True):
                    memory.write(place, values.tobytes())
                arguments = b"".join(place.to_bytes(8, "little") for place in places[a.nbytes])
                device.launch(module.kernels[f"b{number}"], Launch(Extent(COUNT // 64), Extent(64), arguments), mode)
                result = np.float32 if statement.floats else kind
                got = np.frombuffer(memory.read(places[a.nbytes][2], a.nbytes), result)
                wrong = np.flatnonzero(~same(got, want.view(result)))
                assert not len(wrong), (statement.gpu, mode, [(a[k], b[k], got[k], want[k]) for k in wrong[:3]])
            seen += 1
    assert seen == rounds * sum(gpu in each.gpus for each in STATEMENTS)
