"""Processes that fork: the emulated device goes on in the child, a GPU that was used does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from scale_calls import ScaleLibrary, in_own_process
from test_runtime_gpu import AS_GPU

pytestmark = pytest.mark.compile

no_gpu = pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have a GPU")

# Runs a function in a forked child, and gives its exit code; 99 when it raised, with the error on standard error.
FORK = """
import os, threading, traceback
def forked(function):
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
device = Device("emulated:gfx942")
x = np.arange(300, dtype=np.float32)
"""


def test_the_child_has_its_own_copy(scale: ScaleLibrary) -> None:
    program = """
shared = device.allocate(4, "shared")
shared.copy_from(b"both")
def child():
    seen = bytearray(4)
    shared.copy_to(seen)
    assert seen == b"both"
    shared.copy_from(b"mine")
    assert (scale.tripled(device, x) == 3 * x).all()
    assert forked(lambda: scale.tripled(device, x)) == 0
    shared.free()
assert (scale.tripled(device, x) == 3 * x).all()
assert forked(child) == 0
seen = bytearray(4)
shared.copy_to(seen)
print(seen.decode(), shared.alive)
"""
    assert in_own_process(scale.program(FORK + program)) == "both True\n"


def test_a_fork_in_the_middle_of_launches(scale: ScaleLibrary) -> None:
    program = """
stop = threading.Event()
def work():
    while not stop.is_set():
        assert (scale.tripled(device, x) == 3 * x).all()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
codes = [forked(lambda: scale.tripled(device, x)) for _ in range(10)]
stop.set()
for thread in threads:
    thread.join()
print(codes)
"""
    assert in_own_process(scale.program(FORK + program)) == f"{[0] * 10}\n"


def test_a_fork_while_the_shim_is_opened(scale: ScaleLibrary) -> None:
    program = """
import signal, sys, time
from tilewright.emulator.hip_shim import shim
failed_handlers = []
sys.unraisablehook = failed_handlers.append
opening, open_new_shim = threading.Event(), shim._open_new_shim
def open_slowly():
    opening.set()
    time.sleep(0.5)
    return open_new_shim()
shim._open_new_shim = open_slowly
thread = threading.Thread(target=lambda: scale.tripled(device, x))
thread.start()
opening.wait()
def child():
    signal.alarm(60)  # a child that waits for a lock of the parent's thread ends by this signal
    assert (scale.tripled(device, x) == 3 * x).all()
print(forked(child), len(failed_handlers))
thread.join()
"""
    assert in_own_process(scale.program(FORK + program)) == "0 0\n"


def test_the_child_may_be_the_first(scale: ScaleLibrary) -> None:
    program = """
def child():
    assert (scale.tripled(device, x) == 3 * x).all()
assert forked(child) == 0
child()
print("both")
"""
    assert in_own_process(scale.program(FORK + program)) == "both\n"


@no_gpu
def test_real_hip_that_the_parent_used() -> None:
    program = """
import os
from tilewright.base.errors import DeviceError
from tilewright.runtime import Device
def ask():
    try:
        Device("gpu:0").allocate(16)
    except DeviceError as error:
        return str(error)
def told():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, ask().encode())
        os._exit(0)
    os.wait()
    return os.read(read, 10000).decode()
print(told())
ask()
print(told())
"""
    before, after = in_own_process(program).splitlines()
    assert "hipErrorNoDevice" in before  # the parent had not used it, so the child may
    assert "across a fork" in after and "'spawn' or 'forkserver'" in after


def test_buffers_of_a_gpu_are_left_alone_in_a_child(scale: ScaleLibrary) -> None:
    program = """
gpu = Device("gpu:1")
buffer, stream = gpu.allocate(16), gpu.stream()
def child():
    global buffer, stream
    for attempt in (lambda: buffer.fill(1), buffer.free, gpu.synchronize, gpu.activate, gpu.make_current, gpu.stream):
        try:
            attempt()
        except DeviceError as error:
            assert "across a fork" in str(error), error
        else:
            raise AssertionError(attempt)
    del buffer, stream
assert forked(child) == 0
buffer.fill(1)
print(buffer.alive)
"""
    assert in_own_process(scale.program(FORK + AS_GPU + program)) == "True\n"
