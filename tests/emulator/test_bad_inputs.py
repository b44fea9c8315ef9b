"""A real GEMM kernel that is given what it must not be given: a fault with a name and a place, or the right result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tilewright.base.errors import DeviceError
from tilewright.building.compile_job import LIBRARY
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.emulator.faults import AlignmentFault, EndlessLoopFault, Fault, MemoryFault
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.execution import Execution
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

CONFIG = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1), mma=(16, 16, 16),
    pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
# 5 × 3 blocks, five steps along K.
PROBLEM = tw.gemm.Problem(m=320, n=192, k=160, dtype="fp16", layout="rcr")
ENGINES = ("numpy", "native")
SIZES = {"a": 2 * PROBLEM.m * PROBLEM.k, "b": 2 * PROBLEM.k * PROBLEM.n, "c": 2 * PROBLEM.m * PROBLEM.n}


@dataclass(frozen=True)
class Gemm:
    """C = A · B on an emulated device, with buffers and arguments that need not fit."""

    device: tw.Device
    call: BoundKernel
    execution: Execution
    inputs: dict[str, np.ndarray] = field(repr=False)

    def run(
        self, *, missing: dict[str, int] | None = None, shifted: dict[str, int] | None = None,
        arguments: dict[str, int] | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Launch with buffers that lack some bytes, at addresses some bytes further, with other arguments."""
        missing, shifted = missing or {}, shifted or {}
        buffers = {}
        for name, size in SIZES.items():
            shift = shifted.get(name, 0)
            room = size - missing.get(name, 0) + shift
            buffers[name] = self.device.allocate(room, name)
            if name == "c":
                buffers[name].fill(0xFF)
            else:
                # B is column-major.
                octets = (self.inputs["a"] if name == "a" else self.inputs["b"].T).tobytes()
                buffers[name].copy_from(bytes(shift) + octets[: room - shift])
        with changed(self.call, arguments or {}):
            self.call([buffers[name].address + shifted.get(name, 0) for name in "abc"], None)
        found = bytearray(buffers["c"].nbytes)
        buffers["c"].copy_to(found)
        return np.frombuffer(bytes(found)[shifted.get("c", 0) :], np.float16)

    def right(self, c: np.ndarray) -> bool:
        """Whether these are the results, exactly: the inputs are small whole numbers."""
        a, b = (self.inputs[name].astype(np.float64) for name in "ab")
        return bool((c.reshape(PROBLEM.m, PROBLEM.n) == a @ b).all())


@contextmanager
def changed(call: BoundKernel, arguments: dict[str, int]) -> Iterator[None]:
    before = {name: getattr(call.prototype, name) for name in arguments}
    for name, value in arguments.items():
        setattr(call.prototype, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(call.prototype, name, value)


@pytest.fixture(scope="module", params=["gfx942", "gfx1201"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return tw.kernel_of(CONFIG, request.param)


@pytest.fixture(scope="module")
def gemm(kernel: Kernel) -> Gemm:
    (artifact,) = built([kernel])
    device = tw.Device(f"emulated:{kernel.arch}")
    execution = find_op("gemm").execution
    assert execution is not None
    functions = bind_functions(device, artifact.verify_file(LIBRARY), kernel)
    numbers = np.random.default_rng(5)
    inputs = {
        name: numbers.integers(-2, 3, shape).astype(np.float16)
        for name, shape in (("a", (PROBLEM.m, PROBLEM.k)), ("b", (PROBLEM.k, PROBLEM.n)))
    }
    return Gemm(device, BoundKernel(device, kernel, functions, execution, PROBLEM), execution, inputs)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, gemm: Gemm) -> Iterator[str]:
    with gemm.device.emulating(engine=request.param):
        yield request.param


def check_place(fault: Fault, kernel: Kernel) -> None:
    """Everything about the place is known."""
    place = fault.place
    assert place.kernel is not None and place.instruction is not None and place.address is not None
    assert place.block is not None and 0 <= place.block < 15
    assert place.wave is not None and 0 <= place.wave < 4
    assert place.lane is not None and 0 <= place.lane < tw.load(kernel.arch).wave_size
    for part in (place.instruction, f"work-group {place.block}, wave {place.wave}, lane {place.lane}", "kernel: "):
        assert part in str(fault)


@pytest.mark.usefixtures("engine")
def test_the_kernel_itself_is_right(gemm: Gemm) -> None:
    assert gemm.right(gemm.run())


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", SIZES)
def test_a_buffer_that_is_too_short(gemm: Gemm, kernel: Kernel, name: str, mode: Mode) -> None:
    with gemm.device.mode(mode), pytest.raises(MemoryFault, match=f"the end of '{name}'") as caught:
        gemm.run(missing={name: 64})
    check_place(caught.value, kernel)
    assert str(caught.value.place.instruction).startswith(("buffer_store", "global_store")) is (name == "c")
    assert gemm.right(gemm.run()), "the device goes on"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", SIZES)
def test_a_stride_that_is_too_large(gemm: Gemm, kernel: Kernel, name: str) -> None:
    """Twice as far from line to line as the buffer has room for: far outside, where others may be nearer."""
    stride = f"stride_{name}"
    with pytest.raises(MemoryFault, match=r"bytes at 0x[0-9a-f]+: .*'(a|b|c|kernel arguments)'") as caught:
        gemm.run(arguments={stride: 2 * getattr(PROBLEM, stride)})
    check_place(caught.value, kernel)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", SIZES)
def test_a_stride_that_is_too_small(gemm: Gemm, name: str) -> None:
    """Lines overlap: nothing is outside, so nothing is a fault; the result is one of other matrices."""
    found = gemm.run(arguments={f"stride_{name}": 8})
    assert found.size == PROBLEM.m * PROBLEM.n
    assert not gemm.right(found)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_an_address_that_is_not_aligned(gemm: Gemm, kernel: Kernel, name: str, shift: int, mode: Mode) -> None:
    with gemm.device.mode(mode):
        try:
            assert gemm.right(gemm.run(shifted={name: shift}))
        except AlignmentFault as fault:
            check_place(fault, kernel)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", SIZES)
def test_an_address_of_nothing(gemm: Gemm, kernel: Kernel, name: str) -> None:
    """Far from everything that is allocated."""
    with pytest.raises(MemoryFault, match="bytes at 0x") as caught:
        _run_at(gemm, name, 1 << 40)
    check_place(caught.value, kernel)


def _run_at(gemm: Gemm, name: str, address: int) -> None:
    buffers = {each: gemm.device.allocate(size, each) for each, size in SIZES.items()}
    addresses = [address if each == name else buffers[each].address for each in "abc"]
    gemm.call(addresses, None)


def test_a_kernel_that_takes_longer_than_its_limit(gemm: Gemm, kernel: Kernel, engine: str) -> None:
    with gemm.device.emulating(limit=500), pytest.raises(EndlessLoopFault, match="the limit is 500") as caught:
        gemm.run()
    place = caught.value.place
    assert place.kernel is not None and place.instruction is not None
    assert gemm.right(gemm.run()), "the device goes on"


def test_a_library_without_code_for_the_gpu(gemm: Gemm, kernel: Kernel) -> None:
    other = tw.Device("emulated:gfx90a")
    (artifact,) = built([kernel])
    functions = bind_functions(other, artifact.verify_file(LIBRARY), kernel)
    buffers = [other.allocate(size, name) for name, size in SIZES.items()]
    with pytest.raises(DeviceError, match=kernel.arch) as caught:
        call = BoundKernel(other, kernel, functions, gemm.execution, PROBLEM)
        call([buffer.address for buffer in buffers], None)
    assert "gfx90a" in str(caught.value)
    assert gemm.right(gemm.run())
