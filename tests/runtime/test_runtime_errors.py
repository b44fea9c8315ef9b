"""What goes wrong on a device becomes an exception with its cause, and is never lost."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest
from scale_calls import HIP_ERROR, OK, ScaleLibrary

from tilewright.base.errors import DeviceError
from tilewright.emulator.faults import MemoryFault
from tilewright.runtime import Device, HipError

pytestmark = pytest.mark.compile

GFX942 = Device("emulated:gfx942")


def test_a_short_buffer_is_a_memory_fault_with_its_place(scale: ScaleLibrary) -> None:
    with GFX942.allocate(400, "x") as x, GFX942.allocate(396, "y") as y:
        assert scale.run(GFX942, x.address, y.address, 100) == HIP_ERROR
        with pytest.raises(MemoryFault, match=r"0 bytes past the end of 'y'") as caught:
            GFX942.raise_pending("the launch failed")
    place = caught.value.place
    assert (place.block, place.wave, place.lane) == (1, 0, 35)
    assert place.instruction is not None and "store" in place.instruction
    assert caught.value.__notes__ == ["raised by: the launch failed"]


def test_a_fault_that_nobody_asked_for_is_raised_by_the_next_call(scale: ScaleLibrary) -> None:
    with GFX942.allocate(4, "y") as y:
        for next_call in (GFX942.synchronize, GFX942.stream, lambda: y.fill(0), lambda: GFX942.allocate(1)):
            assert scale.run(GFX942, y.address, y.address, 2) == HIP_ERROR
            with pytest.raises(MemoryFault, match="'y'"):
                next_call()
            next_call()  # once raised it is over


def test_later_faults_are_notes_of_the_first(scale: ScaleLibrary) -> None:
    with GFX942.allocate(4, "y") as y:
        for _ in range(2):
            assert scale.run(GFX942, y.address, y.address, 2) == HIP_ERROR
        with pytest.raises(MemoryFault) as caught:
            GFX942.synchronize()
        assert caught.value.__notes__[0] == "raised by: hipDeviceSynchronize"
        assert caught.value.__notes__[1].startswith("after it: MemoryFault: memory-fault")


def test_faults_belong_to_their_device(scale: ScaleLibrary) -> None:
    other = Device("emulated:gfx950")
    with GFX942.allocate(4, "y") as y:
        assert scale.run(GFX942, y.address, y.address, 2) == HIP_ERROR
        other.synchronize()
        with pytest.raises(MemoryFault):
            GFX942.synchronize()


def test_after_a_fault_the_device_goes_on(scale: ScaleLibrary) -> None:
    x = np.arange(100, dtype=np.float32)
    with GFX942.allocate(4, "y") as y:
        assert scale.run(GFX942, y.address, y.address, 2) == HIP_ERROR
    with pytest.raises(MemoryFault):
        GFX942.synchronize()
    assert (scale.tripled(GFX942, x) == 3 * x).all()


def test_an_error_that_was_raised_does_not_fail_the_next_launch(scale: ScaleLibrary) -> None:
    """Kernel libraries ask for the last error of the thread after a launch."""
    with pytest.raises(HipError, match="hipErrorInvalidHandle"):
        GFX942.call("hipStreamSynchronize", 12345)
    x = np.arange(10, dtype=np.float32)
    assert (scale.tripled(GFX942, x) == 3 * x).all()


def test_names_of_statuses() -> None:
    with pytest.raises(HipError, match=r"the copy: hipErrorInvalidValue \(1\)") as caught:
        GFX942.check(1, "the copy")
    assert (caught.value.status, caught.value.hip_name) == (1, "hipErrorInvalidValue")
    GFX942.check(0, "nothing")
    with pytest.raises(HipError, match=r"hipErrorUnknown \(12345\)"):
        GFX942.check(12345, "something")
    with pytest.raises(DeviceError, match="emulated:gfx942: no fault is known"):
        GFX942.raise_pending("no fault is known")


def test_more_memory_than_there_is() -> None:
    with pytest.raises(DeviceError, match="no room for 1099511627776 bytes"):
        GFX942.allocate(1 << 40)
    hip = GFX942.load_hip()
    with GFX942.make_current():
        assert hip.call("hipMalloc", ctypes.byref(ctypes.c_void_p()), 1 << 40) == 2  # hipErrorOutOfMemory
    with pytest.raises(DeviceError, match="no room"):
        GFX942.synchronize()


def test_memory_that_is_not_the_devices() -> None:
    with pytest.raises(MemoryFault, match="0x10 is freed"):
        GFX942.call("hipFree", 16)
    buffer = GFX942.allocate(16, "once")
    GFX942.call("hipFree", buffer.address)
    with pytest.raises(MemoryFault, match="second time"):
        buffer.free()


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises what Ctrl-C does in the main thread after some time, wherever that is."""

    def ring(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt("the alarm")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interruption_ends_a_launch_and_is_not_lost(scale: ScaleLibrary) -> None:
    n = 100_000_000  # takes seconds
    with GFX942.allocate(4 * n, "x") as x, alarm(0.3):
        status = scale.run(GFX942, x.address, x.address, n)
    assert status == HIP_ERROR
    with pytest.raises(KeyboardInterrupt, match="the alarm"):
        GFX942.raise_pending("the launch failed")
    with GFX942.allocate(400, "x") as x:
        assert scale.run(GFX942, x.address, x.address, 100) == OK
