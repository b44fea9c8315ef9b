"""Devices, buffers and streams: what they are without any library, and on the stand-in."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from scale_calls import ScaleLibrary, in_own_process

from tilewright.base import knobs
from tilewright.base.errors import DeviceError, InvalidValueError, KnobError, UnknownValueError
from tilewright.emulator.faults import EndlessLoopFault
from tilewright.emulator.launch import Mode
from tilewright.runtime import Buffer, Device, HipError, current_device, devices, hip_library
from tilewright.runtime.device_objects import get_stream_handle

GFX942 = Device("emulated:gfx942")


def test_names() -> None:
    assert (GFX942.kind, GFX942.arch.name, str(GFX942)) == ("emulated", "gfx942", "emulated:gfx942")
    assert (Device("gpu:3").kind, Device("gpu:3").index) == ("gpu", 3)
    assert Device("gpu:0") == Device("gpu:0") and len({Device("gpu:0"), Device("gpu:0"), GFX942}) == 2


@pytest.mark.parametrize("name", ["gpu", "gpu:", "gpu:-1", "gpu:01", "emulated:gfx908", "cuda:0", "", "emulated"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownValueError, match="emulated:gfx942"):
        Device(name)


def test_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(knobs.DEVICE.name, raising=False)
    assert current_device() is None
    with GFX942, Device("gpu:1") as inner:
        assert current_device() == inner
        seen: list[Device | None] = []
        thread = threading.Thread(target=lambda: seen.append(current_device()))
        thread.start()
        thread.join()
        assert seen == [None]
    monkeypatch.setenv(knobs.DEVICE.name, "emulated:gfx1100")
    assert current_device() == Device("emulated:gfx1100")
    monkeypatch.setenv(knobs.DEVICE.name, "emulated:gfx1")
    with pytest.raises(KnobError, match=r"TILEWRIGHT_DEVICE='emulated:gfx1'.*emulated:gfx1100"):
        current_device()


def test_importing_the_runtime_loads_nothing() -> None:
    program = """
import sys, tilewright.runtime
from tilewright.runtime import Device, devices, hip_library
assert len(devices()) >= 5 and Device("emulated:gfx942").arch.name == "gfx942"
mapped = hip_library.find_mapped_libraries()
print(mapped, [name for name in ("numpy", "elftools", "ml_dtypes", "torch") if name in sys.modules])
"""
    assert in_own_process(program) == "[] []\n"


def test_handles_of_streams() -> None:
    class HipPython:
        def __int__(self) -> int:
            return 77

    assert [get_stream_handle(s) for s in (None, 0, 5, np.int64(6))] == [0, 0, 5, 6]
    assert get_stream_handle(SimpleNamespace(cuda_stream=9)) == 9
    assert get_stream_handle(HipPython()) == 77
    for wrong in ("0", 1.5, object(), True):
        with pytest.raises(InvalidValueError, match="is not a stream"):
            get_stream_handle(wrong)


def test_without_the_extras() -> None:
    program = """
import importlib.util
from tilewright.base.errors import DeviceError
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "elftools" else real(name, *more)
from tilewright.runtime import Device
try:
    Device("emulated:gfx942").allocate(16)
except DeviceError as error:
    print(error)
"""
    assert in_own_process(program) == (
        "the emulated device needs pyelftools. Get it with: pip install 'tilewright[emulator]'\n"
    )


@pytest.mark.compile
def test_bytes_go_there_and_back() -> None:
    rng = np.random.default_rng(7)
    for array in (
        rng.integers(0, 255, 1001).astype(np.uint8),
        rng.random((33, 7)),
        rng.random(64).astype(ml_dtypes.bfloat16),
        rng.random(65).astype(ml_dtypes.float8_e4m3fnuz),
    ):
        with GFX942.allocate(array.nbytes) as buffer:
            buffer.copy_from(array)
            back = np.zeros_like(array)
            buffer.copy_to(back)
            assert back.tobytes() == array.tobytes()
            assert bytes(memoryview((np.ctypeslib.ctypes.c_char * array.nbytes).from_address(buffer.address))) == (
                array.tobytes()
            )


@pytest.mark.compile
def test_buffers_check_what_they_are_given() -> None:
    with GFX942.allocate(10, "ten") as buffer:
        buffer.copy_from(b"0123456789")
        with pytest.raises(InvalidValueError, match=r"11 bytes cannot be copied into Buffer\('ten', 10 bytes"):
            buffer.copy_from(bytes(11))
        with pytest.raises(InvalidValueError, match="writable"):
            buffer.copy_to(b"0123456789")
        with pytest.raises(InvalidValueError, match="contiguous"):
            buffer.copy_from(np.arange(10, dtype=np.uint8)[::2])
        with pytest.raises(InvalidValueError, match="does not provide contiguous bytes"):
            buffer.copy_from("text")
        with pytest.raises(InvalidValueError, match="0 to 255"):
            buffer.fill(256)
        part = bytearray(4)
        buffer.copy_to(part)
        assert part == b"0123"
        buffer.fill(0xAB)
        whole = bytearray(10)
        buffer.copy_to(whole)
        assert whole == b"\xab" * 10
    assert not buffer.alive
    with pytest.raises(DeviceError, match="was freed"):
        buffer.fill(0)
    with pytest.raises(DeviceError, match="second time"):
        buffer.free()
    for size in (0, -1, True, 1.5):
        with pytest.raises(InvalidValueError, match="an integer of at least 1"):
            GFX942.allocate(size)  # type: ignore[arg-type]


@pytest.mark.compile
def test_a_buffer_that_nobody_has_is_freed() -> None:
    kept = GFX942.allocate(100)
    address = Buffer(GFX942, 100, "lost").address  # gone in the same line
    hip = GFX942.load_hip()
    with GFX942.make_current():
        assert hip.call("hipMemset", address, 0, 100) == 1  # hipErrorInvalidValue
        assert hip.call("hipMemset", kept.address, 0, 100) == 0
    with pytest.raises(DeviceError, match=r"'lost'.* was freed"):
        GFX942.synchronize()


@pytest.mark.compile
def test_streams_and_events(scale: ScaleLibrary) -> None:
    stream, before, after = GFX942.stream(), GFX942.event(), GFX942.event()
    x = np.arange(100, dtype=np.float32)
    before.record(stream)
    assert (scale.tripled(GFX942, x, stream) == 3 * x).all()
    after.record(stream)
    after.synchronize()
    stream.synchronize()
    with pytest.raises(HipError, match="hipErrorNotSupported") as caught:
        after.elapsed_ms(before)
    assert caught.value.status == 801
    handle = stream.handle
    del stream
    assert scale.run(GFX942, 0, 0, 1, handle) == 4  # a stream that is gone
    with pytest.raises(HipError, match="hipErrorInvalidHandle"):
        before.record(handle)


@pytest.mark.compile
def test_settings_and_records(scale: ScaleLibrary) -> None:
    x = np.arange(130, dtype=np.float32)
    with GFX942.recording() as outer:
        with GFX942.mode(Mode.STRICT), GFX942.recording() as inner:
            assert (scale.tripled(GFX942, x) == 3 * x).all()
        assert (scale.tripled(GFX942, x) == 3 * x).all()
    assert [launch.mode for launch in outer] == [Mode.STRICT, Mode.FAST]
    assert inner == outer[:1]
    (launch,) = inner
    assert (launch.grid.count, launch.block.count, launch.counters.waves) == (3, 64, 3)
    assert launch.counters.global_read_bytes >= x.nbytes == launch.counters.global_write_bytes
    with pytest.raises(EndlessLoopFault), GFX942.emulating(limit=3):
        scale.tripled(GFX942, x)
    with GFX942.emulating(dry=True), GFX942.recording() as none:
        assert scale.run(GFX942, 0, 0, 10) == 0  # nothing runs, so nothing is wrong with null pointers
    assert none == []
    assert (scale.tripled(GFX942, x) == 3 * x).all()
    with pytest.raises(InvalidValueError, match="at least 1"), GFX942.emulating(limit=0):
        pass
    with pytest.raises(UnknownValueError, match="numpy, native, auto"), GFX942.emulating(engine="fast"):
        pass
    with pytest.raises(DeviceError, match=r"gpu:0 does not support recording\(\)"):
        Device("gpu:0").recording()


@pytest.mark.compile
def test_a_process_that_has_the_emulator_takes_no_gpu() -> None:
    GFX942.load_hip()
    with pytest.raises(DeviceError, match="Use the GPU first: then emulated devices run in a separate process"):
        Device("gpu:0").allocate(16)


@pytest.mark.compile
def test_all_devices_are_listed_without_loading_hip() -> None:
    names = [device.name for device in devices()]
    assert names[-5:] == [f"emulated:{arch}" for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")]
    assert [path.parent for path in hip_library.find_mapped_libraries()] == [GFX942.load_hip().path.parent]


@pytest.mark.compile
def test_building_loads_no_hip(plugin: Path, tmp_path: Path) -> None:
    ck = tmp_path / "ck"
    (ck / "include" / "ck_tile").mkdir(parents=True)
    program = f"""
import sys; sys.path.insert(0, {str(plugin)!r})
import tilewright as tw
from tilewright.ops import find_op
from tilewright.runtime import hip_library
op = find_op("scale")
registry = tw.build([op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=17), "gfx942")], jobs=1)
assert len(registry.kernels) == 1 and not registry.failures, registry
print(hip_library.find_mapped_libraries())
"""
    said = in_own_process(program, TILEWRIGHT_CK=str(ck), TILEWRIGHT_STORE=str(tmp_path / "store"))
    assert said == "[]\n"
