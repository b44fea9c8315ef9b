"""The stand-in library itself: its name, symbols and structures, and HIP calls that the runtime does not make."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scale_calls import ScaleLibrary, in_own_process

from tilewright.base import knobs
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.faults import CodeObjectError, LaunchFault
from tilewright.emulator.hip_shim import interface
from tilewright.emulator.hip_shim import shim_library as shim
from tilewright.runtime import Device
from tilewright.runtime.hip import SIGNATURES

pytestmark = pytest.mark.compile

GFX942, GFX950 = Device("emulated:gfx942"), Device("emulated:gfx950")
INVALID_VALUE, INVALID_DIRECTION, NO_BINARY, INVALID_HANDLE = 1, 21, 209, 400


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a test leaves pending is its own."""
    yield
    GFX942.load_hip().clear_error()


@contextmanager
def fault_of(device: Device, match: str, kind: type[Exception] = TilewrightError) -> Iterator[None]:
    """Inside, a call fails; the fault behind it is the one that is expected."""
    with device.make_current():
        yield
    with pytest.raises(kind, match=match):
        device.raise_pending("nothing was kept")


def exported(path: Path) -> dict[str, str]:
    return dict(shim.read_versions(path, find_toolchain()))


def test_it_compiles_with_the_headers_of_hip_7(tmp_path: Path) -> None:
    """The wheel of Triton has them. Some parameters are const from HIP 7 on, and hiprtc.h is missing in the wheel."""
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("Triton is not installed")
    headers = Path(triton.origin).parent / "backends" / "amd"
    toolchain = dataclasses.replace(find_toolchain(), rocm_path=headers)
    assert "HIP_VERSION_MAJOR 7" in (headers / "include" / "hip" / "hip_version.h").read_text("utf-8")
    assert shim.build_shim(toolchain, Store(tmp_path)).is_file()


def test_it_passes_for_the_real_library(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    real, made = shim.find_hip_library(toolchain), GFX942.load_hip().path
    assert shim.read_soname(made, toolchain) == shim.read_soname(real, toolchain) == made.name
    ours, theirs = exported(made), exported(real)
    entry_points = {name: version for name, version in ours.items() if not name.startswith("tilewright")}
    assert entry_points == {name: theirs.get(name, "tilewright_1") for name in entry_points}
    left_out = {name for name in theirs if name.startswith("hip")} - set(entry_points)
    assert left_out == set(), "functions that are not implemented exist as well, and say so"
    sources = Path(shim.__file__).parent.glob("*.cpp")
    defined = {name for source in sources for name in shim._DEFINED.findall(source.read_text())}
    assert len([name for name in defined if "hip" in name]) == len(defined & set(entry_points)) >= 190
    own = (
        *("captured", "close", "dry", "heap_make", "host_calls_begin", "host_calls_bytes", "host_calls_end"),
        "host_calls_write",
        *("missing", "open", "program", "refused", "script", "script_left", "unscript"),
    )
    assert sorted(set(ours) - set(entry_points)) == [f"tilewright_{name}" for name in own]
    assert set(SIGNATURES) <= set(entry_points)


def test_structures_are_the_same_in_both_languages(tmp_path: Path) -> None:
    lines, expected = [], []
    kinds = (interface.DeviceFacts, interface.LaunchRequest, interface.KernelFacts, interface.AllocationRange)
    for kind in (*kinds, interface.Callbacks):
        name = kind.__name__
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(kind)}")
        for field, _ in kind._fields_:
            lines.append(f'std::printf("{field} %zu\\n", offsetof({name}, {field}));')
            expected.append(f"{field} {getattr(kind, field).offset}")
    source = tmp_path / "sizes.cpp"
    body = "\n".join(lines)
    source.write_text(f'#include <cstddef>\n#include <cstdio>\n#include "interface.hpp"\nint main()\n{{\n{body}\n}}\n')
    command = [find_toolchain().cxx, f"-I{Path(shim.__file__).parent}", source, "-o", tmp_path / "sizes"]
    subprocess.run(command, check=True)
    said = subprocess.run([tmp_path / "sizes"], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == expected


def test_a_version_script_without_versions() -> None:
    script = shim.format_version_script({})
    assert "hip*; __hip*;" in script and "local: *;" in script
    mixed = shim.format_version_script({"hipFree": "hip_4.2", "hipB": "hip_5.0", "amd_x": "other", "hipA": "hip_4.2"})
    assert re.findall(r"^(\w[\w.]*) \{\n  global: (.*);$", mixed, re.MULTILINE)[:2] == [
        ("hip_4.2", "hipA; hipFree"),
        ("hip_5.0", "hipB"),
    ]


def test_it_is_built_once_and_again_when_damaged(tmp_path: Path) -> None:
    store, toolchain = Store(tmp_path / "store"), find_toolchain()
    built = shim.build_shim(toolchain)  # by an earlier test, or now
    entry = Store().get(built.parent.name)
    assert isinstance(entry, Artifact)
    store.put(entry.key, {built.name: built}, entry.facts)
    first = shim.build_shim(toolchain, store)
    written = first.stat().st_mtime_ns
    assert shim.build_shim(toolchain, store) == first and first.stat().st_mtime_ns == written
    sound = first.read_bytes()
    first.write_bytes(sound[:1000] + bytes([sound[1000] ^ 1]) + sound[1001:])
    again = shim.build_shim(toolchain, store)
    assert again.read_bytes() == sound


def test_it_needs_no_ck_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(knobs.CK_PATH.name, str(tmp_path / "absent"))
    with pytest.raises(TilewrightError, match="absent"):
        find_toolchain()
    assert shim.build_shim(find_toolchain(with_ck=False)) == GFX942.load_hip().path


def test_a_function_that_is_not_implemented(tmp_path: Path) -> None:
    """A library that needs it can be loaded; a call fails and is named."""
    source, library = tmp_path / "more.c", tmp_path / "more.so"
    source.write_text("int hipFreeArray(void*); int f(void) { return hipFreeArray(0); }")
    command = [find_toolchain().cxx, "-x", "c", "-shared", "-fPIC", "-fuse-ld=lld", source, "-o", library, "-lamdhip64"]
    subprocess.run(command, check=True)
    with fault_of(GFX942, "hipFreeArray is not implemented by the emulated device", DeviceError):
        assert GFX942.library(library).f() == 801
    with pytest.raises(DeviceError, match="cannot be loaded"):
        GFX942.library(tmp_path / "absent.so")


def test_copies_follow_their_direction() -> None:
    hip, host, back = GFX942.load_hip(), ctypes.create_string_buffer(b"abcdefgh", 8), ctypes.create_string_buffer(8)
    at, to = ctypes.addressof(host), ctypes.addressof(back)
    with GFX942.allocate(8, "left") as left, GFX950.allocate(8, "right") as right:
        with GFX942.make_current():
            assert hip.call("hipMemcpy", left.address, at, 8, 1) == 0
            assert hip.call("hipMemcpy", right.address, left.address, 8, 3) == 0  # from one GPU to another
            assert hip.call("hipMemcpy", to, right.address, 8, 4) == 0  # hipMemcpyDefault
            assert back.raw == b"abcdefgh"
            assert hip.call("hipMemcpy", to, at, 4, 0) == 0
            assert hip.call("hipMemcpy", left.address, 0, 0, 1) == 0  # no bytes, no check
        for target, source, direction in (
            (left.address, at, 2),
            (to, at, 1),
            (to, left.address, 3),
            (to, right.address, 0),
        ):
            with fault_of(GFX942, "a copy to .* from .* has a target on the"):
                assert hip.call("hipMemcpy", target, source, 8, direction) == INVALID_DIRECTION
        with fault_of(GFX942, "9 bytes at .*'left'"):
            assert hip.call("hipMemcpy", left.address, at, 9, 1) == INVALID_VALUE
        with fault_of(GFX942, "not a copy direction"):
            assert hip.call("hipMemcpy", left.address, at, 8, 9) == INVALID_VALUE


def test_filling_rows() -> None:
    hip = GFX942.load_hip()
    fill = hip.library.hipMemset2DAsync
    fill.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    with GFX942.allocate(100, "rows") as buffer, GFX942.make_current():
        buffer.fill(1)
        assert fill(buffer.address, 30, 0x1FF, 10, 4, None) == 0
        back = np.zeros(100, np.uint8)
        buffer.copy_to(back)
        expected = np.ones(100, np.uint8)
        for row in range(4):
            expected[30 * row : 30 * row + 10] = 0xFF
        assert (back == expected).all()
        with fault_of(GFX942, "'rows'"):
            assert fill(buffer.address, 30, 0, 11, 4, None) == INVALID_VALUE
        with fault_of(GFX942, "pitch of 5"):
            assert fill(buffer.address, 5, 0, 10, 2, None) == INVALID_VALUE
        with fault_of(GFX942, "not in the memory of an emulated device"):
            assert fill(ctypes.addressof(ctypes.c_int()), 4, 0, 4, 1, None) == INVALID_VALUE
        assert fill(buffer.address, 30, 0, 10, 4, ctypes.c_void_p(12345)) == INVALID_HANDLE


def test_modules(scale: ScaleLibrary) -> None:
    hip, code = GFX942.load_hip(), (scale.path.parent / "kernel.co").read_bytes()
    name = re.search(rb"_ZN\w+scaleE\w+", code)
    assert name is not None
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    x = np.arange(64, dtype=np.float32)
    with GFX942.allocate(256, "x") as source, GFX942.allocate(256, "y") as target, GFX942.make_current():
        source.copy_from(x)
        kept = ctypes.create_string_buffer(code, len(code))
        assert hip.call("hipModuleLoadData", ctypes.byref(module), kept) == 0
        ctypes.memset(kept, 0, len(code))  # the caller may give it back
        assert hip.call("hipModuleGetFunction", ctypes.byref(function), module, name[0]) == 0
        values = [ctypes.c_void_p(source.address), ctypes.c_void_p(target.address), *map(ctypes.c_int64, (64, 1, 1))]
        pointers = (ctypes.c_void_p * 5)(*(ctypes.addressof(value) for value in values))
        launch = (function, 1, 1, 1, 64, 1, 1, 0, None)
        assert hip.call("hipModuleLaunchKernel", *launch, pointers, None) == 0
        back = np.zeros_like(x)
        target.copy_to(back)
        assert (back == 3 * x).all()
        packed = b"".join(bytes(value) for value in values)
        size = ctypes.c_size_t(len(packed))
        room = ctypes.create_string_buffer(packed, len(packed))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(room), 2, ctypes.addressof(size), 3)
        target.fill(0)
        assert hip.call("hipModuleLaunchKernel", *launch, None, extra) == 0
        target.copy_to(back)
        assert (back == 3 * x).all()
        assert hip.call("hipModuleLaunchKernel", *launch, None, None) == INVALID_VALUE
        with fault_of(GFX942, "128 threads per work-group", LaunchFault):
            too_large = (function, 1, 1, 1, 128, 1, 1, 0, None)
            assert hip.call("hipModuleLaunchKernel", *too_large, pointers, None) == 9
        with fault_of(GFX942, "argument 1 of 5 is missing", LaunchFault):
            assert hip.call("hipModuleLaunchKernel", *launch, (ctypes.c_void_p * 5)(pointers[0]), None) == 9
        with fault_of(GFX942, "kernel 'other' is missing", LaunchFault):
            assert hip.call("hipModuleGetFunction", ctypes.byref(ctypes.c_void_p()), module, b"other") == 500
        with fault_of(GFX942, r"kernel 'n\\xffame' is missing", LaunchFault):
            assert hip.call("hipModuleGetFunction", ctypes.byref(ctypes.c_void_p()), module, b"n\xffame") == 500
        with fault_of(GFX942, r"variable 'n\\xffame' is missing", CodeObjectError):
            place = ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())
            assert hip.library.hipModuleGetGlobal(*place, module, b"n\xffame") == 500
        assert hip.call("hipModuleUnload", module) == 0
        assert hip.call("hipModuleUnload", module) == INVALID_HANDLE
        assert hip.call("hipModuleLaunchKernel", *launch, pointers, None) == INVALID_HANDLE


@pytest.mark.parametrize(
    "image",
    [
        b"\x7fELF" + bytes(60),
        b"\x7fELF" + b"\xff" * 60,
        b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 8,
        b"__CLANG_OFFLOAD_BUNDLE__" + (2).to_bytes(8, "little") + b"\xff" * 24,
        b"CCOB" + b"\xff" * 60,
        b"CCOB" + bytes(60),
        b"nothing of the kind" + bytes(64),
    ],
)
def test_damaged_images(image: bytes) -> None:
    held = ctypes.create_string_buffer(image, len(image))
    with fault_of(GFX942, "bad-code-object", CodeObjectError):
        assert GFX942.load_hip().call("hipModuleLoadData", ctypes.byref(ctypes.c_void_p()), held) == 200


def test_a_library_without_code_for_the_gpu(scale: ScaleLibrary) -> None:
    assert scale.run(GFX950, 0, 0, 1) == 4
    with pytest.raises(CodeObjectError, match="the image has no code for gfx950, only for gfx942"):
        GFX950.raise_pending("nothing was kept")
    with fault_of(GFX950, "it is for gfx942", CodeObjectError):
        code = (scale.path.parent / "kernel.co").read_bytes()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        hip = GFX950.load_hip()
        assert hip.call("hipModuleLoadData", ctypes.byref(module), code) == 0
        assert hip.call("hipModuleGetFunction", ctypes.byref(function), module, b"any") == 200


def test_occupancy_and_units(scale: ScaleLibrary) -> None:
    hip, library = GFX942.load_hip().library, GFX942.library(scale.path)
    name = re.search(rb"_ZN\w+5scaleE\w+", scale.path.read_bytes())
    assert name is not None
    handle = ctypes.addressof(ctypes.c_char.in_dll(library, name[0].decode()))
    ask, blocks = hip.hipOccupancyMaxActiveBlocksPerMultiprocessor, ctypes.c_int()
    ask.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    with GFX942.make_current():
        assert ask(ctypes.byref(blocks), handle, 64, 0) == 0
        assert blocks.value == 32  # 4 SIMDs of 8 waves, and one wave per work-group
        assert ask(ctypes.byref(blocks), handle, 64, 20000) == 0
        assert blocks.value == 3  # 65536 // 20480, LDS in granules of 512
        with fault_of(GFX942, "128 threads"):
            assert ask(ctypes.byref(blocks), handle, 128, 0) == INVALID_VALUE
        assert ask(ctypes.byref(blocks), 0x1000, 64, 0) == 98  # hipErrorInvalidDeviceFunction
        words = (ctypes.c_uint32 * 11)()
        assert hip.hipExtStreamGetCUMask(None, 11, words) == 0
        assert "".join(f"{word:032b}" for word in reversed(words)).count("1") == 304


def test_the_end_of_a_process_is_quiet(scale: ScaleLibrary) -> None:
    program = """
import gc, subprocess
device = Device("emulated:gfx942")
kept = [device.allocate(100), device.stream(), device.event(), scale.tripled(device, np.arange(5, dtype=np.float32))]
gc.disable()
print(kept[-1].tolist())
"""
    assert in_own_process(scale.program(program)) == "[0.0, 3.0, 6.0, 9.0, 12.0]\n"


def test_a_library_that_brings_another_hip(tmp_path: Path, scale: ScaleLibrary) -> None:
    other, kernel, cxx = tmp_path / "libamdhip64.so.6", tmp_path / "kernel.so", find_toolchain().cxx
    (tmp_path / "hip.c").write_text("int hipThing(void) { return 1; }")
    (tmp_path / "kernel.c").write_text("int hipThing(void); int kernel(void) { return hipThing(); }")
    common = [cxx, "-x", "c", "-shared", "-fPIC", "-fuse-ld=lld"]
    subprocess.run([*common, tmp_path / "hip.c", f"-Wl,-soname,{other.name}", "-o", other], check=True)
    links = [f"-L{tmp_path}", f"-l:{other.name}", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*common, tmp_path / "kernel.c", *links, "-o", kernel], check=True)
    program = f"""
from tilewright.base.errors import DeviceError
try:
    Device("emulated:gfx942").library(Path({str(kernel)!r}))
except DeviceError as error:
    print(error)
"""
    said = in_own_process(scale.program(program))
    assert f"this process has {other} loaded" in said and "a process can have only one HIP library" in said
