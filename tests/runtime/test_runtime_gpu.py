"""The code for real GPUs, on a machine without one: against the real library, and with the stand-in in its place."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from ctypes import byref, c_float, c_int, c_void_p
from pathlib import Path

import pytest
from scale_calls import ScaleLibrary, in_own_process

from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.hip_shim.shim_library import find_hip_library
from tilewright.runtime import Device, count_gpus
from tilewright.runtime.hip import SIGNATURES

pytestmark = pytest.mark.compile

no_gpu = pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have a GPU")

AS_GPU = """
from tilewright.base.errors import DeviceError
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.runtime import HipError, devices, hip_library
hip_library.use_gpu_library(open_shim().path)
x = np.arange(200, dtype=np.float32)
"""


@no_gpu
def test_without_a_gpu_the_error_says_so() -> None:
    program = """
from tilewright.runtime import Device, HipError
try:
    Device("gpu:0").allocate(16)
except HipError as error:
    print(error.status, error.hip_name, error)
"""
    said = in_own_process(program)
    assert said.startswith("100 hipErrorNoDevice hipGetDeviceCount: hipErrorNoDevice (100). No AMD GPU is visible")
    assert "/dev/kfd" in said and "Device('emulated:gfx942')" in said


@no_gpu
def test_counting_in_another_process() -> None:
    library = str(find_hip_library(find_toolchain()))
    command = [sys.executable, "-I", count_gpus.__file__]
    assert subprocess.check_output([*command, "libabsent.so", library], text=True) == "100 0"
    assert subprocess.check_output([*command, "libabsent.so"], text=True) == "none"


def test_a_rocm_path_without_hip(tmp_path: Path) -> None:
    program = """
from tilewright.base.errors import DeviceError
from tilewright.runtime import Device
try:
    Device("gpu:0").allocate(16)
except DeviceError as error:
    print(error)
"""
    said = in_own_process(program, ROCM_PATH=str(tmp_path))
    assert said.startswith(f"ROCM_PATH={tmp_path} is set, but {tmp_path}/lib/libamdhip64.so does not exist")


def test_a_kernel_runs_through_the_code_for_gpus(scale: ScaleLibrary) -> None:
    program = """
device = Device("gpu:1")
assert device.arch.name == "gfx942" and device.load_hip().path == open_shim().path
with device as current:
    assert (scale.tripled(current, x, current.stream()) == 3 * x).all()
buffer = device.allocate(64)
assert scale.run(device, buffer.address, buffer.address, 200) == 4
try:
    device.raise_pending("scale failed")
except DeviceError as error:
    print(error)
event = device.event()
event.record()
device.synchronize()
try:
    event.elapsed_ms(event)
except HipError as error:
    print(error.hip_name)
try:
    Device("gpu:5").allocate(16)
except DeviceError as error:
    print(error)
try:
    device.call("hipMemcpy", buffer.address, buffer.address, 100, 3)
except HipError as error:
    print(error.hip_name)
print([device.name for device in devices()][:6])
"""
    said = in_own_process(scale.program(AS_GPU + program)).splitlines()
    assert said == [
        "gpu:1: scale failed",
        "hipErrorNotSupported",
        "gpu:5 does not exist: HIP sees 5 (gpu:0, gpu:1, gpu:2, gpu:3, gpu:4). HIP_VISIBLE_DEVICES may hide others.",
        "hipErrorInvalidValue",
        "['gpu:0', 'gpu:1', 'gpu:2', 'gpu:3', 'gpu:4', 'emulated:gfx90a']",
    ]


def test_the_device_of_a_thread_is_given_back(scale: ScaleLibrary) -> None:
    hip, gfx950 = Device("emulated:gfx942").load_hip(), Device("emulated:gfx950")
    Device("emulated:gfx1100").activate()
    with gfx950.make_current():
        assert hip.current_device() == 2
        gfx950.allocate(4).free()
        Device("emulated:gfx942").allocate(4).free()
        assert hip.current_device() == 2
    assert hip.current_device() == 3
    Device("emulated:gfx90a").activate()
    assert hip.current_device() == 0


def test_every_function_that_is_bound_can_be_called(scale: ScaleLibrary) -> None:
    device = Device("emulated:gfx942")
    hip, number, gone = device.load_hip(), c_int(), c_float()
    address, stream, event, module, function = (c_void_p() for _ in range(5))
    code = (scale.path.parent / "kernel.co").read_bytes()
    host = ctypes.create_string_buffer(16)
    none = (c_void_p * 5)()
    calls: list[tuple[str, tuple[object, ...], int]] = [
        ("hipInit", (0,), 0),
        ("hipDriverGetVersion", (byref(number),), 0),
        ("hipRuntimeGetVersion", (byref(number),), 0),
        ("hipGetDeviceCount", (byref(number),), 0),
        ("hipGetDevice", (byref(number),), 0),
        ("hipSetDevice", (1,), 0),
        ("hipSetDevice", (5,), 101),
        ("hipDeviceGetAttribute", (byref(number), 9999, 1), 801),
        ("hipDeviceGetPCIBusId", (ctypes.create_string_buffer(12), 12, 1), 1),
        ("hipDeviceGetPCIBusId", (ctypes.create_string_buffer(13), 13, 1), 0),
        ("hipDeviceSynchronize", (), 0),
        ("hipMalloc", (byref(address), 16), 0),
        ("hipMemcpy", (address, host, 16, 1), 0),
        ("hipMemset", (address, 1, 16), 0),
        ("hipStreamCreate", (byref(stream),), 0),
        ("hipStreamDestroy", (stream,), 0),
        ("hipStreamDestroy", (stream,), 400),
        ("hipStreamCreateWithFlags", (byref(stream), 1), 0),
        ("hipMemcpyAsync", (host, address, 16, 2, stream), 0),
        ("hipMemsetAsync", (address, 1, 16, stream), 0),
        ("hipStreamQuery", (stream,), 0),
        ("hipStreamSynchronize", (stream,), 0),
        ("hipEventCreate", (byref(event),), 0),
        ("hipEventRecord", (event, stream), 0),
        ("hipEventQuery", (event,), 0),
        ("hipEventSynchronize", (event,), 0),
        ("hipEventElapsedTime", (byref(gone), event, event), 801),
        ("hipPeekAtLastError", (), 801),
        ("hipGetLastError", (), 801),
        ("hipGetLastError", (), 0),
        ("hipEventDestroy", (event,), 0),
        ("hipModuleLoadData", (byref(module), code), 0),
        ("hipModuleGetFunction", (byref(function), module, None), 1),
        ("hipModuleLaunchKernel", (None, *(1,) * 6, 0, stream, none, None), 400),
        ("hipModuleUnload", (module,), 0),
        ("hipFree", (address,), 0),
    ]
    with device.make_current():
        for name, arguments, status in calls:
            assert hip.call(name, *arguments) == status, name
    hip.clear_error()
    assert host.raw == b"\1" * 16
    assert {name for name, _, _ in calls} == set(SIGNATURES)
