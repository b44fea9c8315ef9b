"""The debugger: breakpoints, steps, registers and LDS of a kernel on the emulated device."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.arch import load
from tilewright.base.errors import InvalidValueError
from tilewright.building import compile_device, find_toolchain
from tilewright.emulator import EmulatedDevice, Extent, Launch, Memory, MemoryFault, Module
from tilewright.emulator.debugger import Debugger

pytestmark = pytest.mark.compile

SOURCE = """#line 1 "scale.hip"
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) void scale(float* x, float factor)
{
    __attribute__((shared)) static float part[64];
    unsigned t = __builtin_amdgcn_workitem_id_x();
    part[t] = x[t] * factor;
    __builtin_amdgcn_s_barrier();
    x[t] = part[63 - t];
}
"""
WRITE, STORE = 5, 7


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("debugger") / "scale.co"
    toolchain = find_toolchain(with_ck=False)
    done = compile_device(SOURCE, load("gfx942"), toolchain, out, extra_flags=("-gline-tables-only",))
    assert done.ok, done.log
    return out.read_bytes()


class Session:
    """The kernel on a device of its own, with 64 numbers."""

    def __init__(self, code: bytes) -> None:
        self.memory = Memory(1 << 24)
        self.device = EmulatedDevice(load("gfx942"), self.memory)
        self.module: Module = self.device.load(code)
        self.address = self.memory.allocate(64 * 4, "x")
        self.memory.write(self.address, np.arange(64, dtype=np.float32).tobytes())

    def debug(self, address: int | None = None) -> Debugger:
        pointer = (self.address if address is None else address).to_bytes(8, "little")
        arguments = pointer + np.float32(2).tobytes()
        launch = Launch(Extent(1), Extent(64), arguments)
        return Debugger(self.device, self.module.kernels["scale"], launch)

    def read(self) -> list[float]:
        return np.frombuffer(self.memory.read(self.address, 256), np.float32).tolist()


@pytest.fixture
def session(code: bytes) -> Iterator[Session]:
    yield Session(code)
    assert not [thread for thread in threading.enumerate() if thread.name == "tilewright-debugger"]


def test_stop_at_a_line_read_and_continue(session: Session) -> None:
    with session.debug() as debugger:
        debugger.break_at(line=STORE, file="scale.hip")
        stop = debugger.run()
        assert stop is not None and stop.source is not None
        assert (stop.source.line, stop.waves, stop.blocks) == (STORE, ((0, 0),), (0,))
        assert "scale.hip:7" in str(stop)
        while not stop.line.text.startswith("ds_read"):  # the compiler computes the address before the barrier
            stop = debugger.step()
            assert stop is not None
        assert stop.read_lds(0, 64, np.float32).tolist() == [2.0 * n for n in range(64)]
        assert stop.active_lanes.all()
        debugger.clear()
        assert debugger.run() is None
        assert debugger.counters is not None and debugger.counters.waves == 1
        with pytest.raises(InvalidValueError, match="has ended"):
            debugger.step()
    assert session.read() == [2.0 * (63 - n) for n in range(64)]


def test_steps_and_registers(session: Session) -> None:
    with session.debug() as debugger:
        (first, *_) = debugger.break_at(line=WRITE)
        stop = debugger.run()
        assert stop is not None and stop.line.address == first
        seen = [stop.line.address]
        while not stop.line.text.startswith("ds_write"):
            stop = debugger.step()
            assert stop is not None
            seen.append(stop.line.address)
        assert len(set(seen)) == len(seen)
        value = stop.line.text.split()[-1]
        stored = stop.read(value, np.float32)
        assert stored.shape == (1, 64)
        assert stored[0].tolist() == [2.0 * n for n in range(64)]
        assert stop.read("exec").tolist() == [[2**32 - 1, 2**32 - 1]]
        with pytest.raises(InvalidValueError, match="'x1' is not a register"):
            stop.read("x1")
        with pytest.raises(InvalidValueError, match="the LDS has 256 bytes"):
            stop.read_lds(0, 65)
        next_line = debugger.step_line()
        assert next_line is not None and next_line.source is not None and next_line.source.line != WRITE
    assert session.read() == list(range(64))  # closed before the store


def test_faults_are_raised_and_lines_checked(session: Session) -> None:
    with session.debug(address=0) as debugger:
        with pytest.raises(InvalidValueError, match=r"no instruction belongs to line 99; lines with instructions: .*5"):
            debugger.break_at(line=99)
        with pytest.raises(InvalidValueError, match="give a line or an address"):
            debugger.break_at()
        with pytest.raises(MemoryFault):
            debugger.run()
