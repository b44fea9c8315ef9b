"""The emulated device in a process that has AMD's HIP library: there it runs in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scale_calls import ROOT, ScaleLibrary, in_own_process

from built_kernels import STORE
from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.hip_shim.shim_library import find_hip_library

pytestmark = pytest.mark.compile


def beside_hip(scale: ScaleLibrary, text: str) -> str:
    """A program in whose process AMD's library is loaded first, as torch of ROCm does it."""
    hip = f"import ctypes; ctypes.CDLL({str(find_hip_library(find_toolchain()))!r})\n"
    return hip + scale.program(START + text)


START = """
import os, signal, threading, time
from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.base.events import Notice, add_listener
from tilewright.emulator.faults import EndlessLoopFault, MemoryFault
from tilewright.emulator.launch import Mode
from tilewright.runtime import HipError, hip_library
device = Device("emulated:gfx942")
x = np.arange(300, dtype=np.float32)
def raised(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert type(error) is kind, type(error)
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")
"""


def test_it_runs_in_a_process_of_its_own_and_says_so(scale: ScaleLibrary) -> None:
    program = """
seen = []
with add_listener(seen.append):
    assert (scale.tripled(device, x) == 3 * x).all()
assert (scale.tripled(device, x) == 3 * x).all()
(notice,) = seen
assert isinstance(notice, Notice) and "libamdhip64" in notice.message, notice
assert f"pid {hip_library.load_shim().pid}" in notice.message and hip_library.load_shim().pid != os.getpid()
assert len(hip_library.find_mapped_libraries()) == 1, hip_library.find_mapped_libraries()  # not the stand-in, too
try:
    Device("gpu:0").allocate(16)  # a GPU can be used beside it
except HipError as error:
    assert error.hip_name == "hipErrorNoDevice", error  # if there is one
print(device.arch.name, device.model, device.load_hip().runtime_version() > 0)
"""
    assert in_own_process(beside_hip(scale, program)) == "gfx942 Instinct MI300X (emulated), 304 units True\n"


def test_a_registry_runs_and_verifies_there(plugin: Path, scale: ScaleLibrary, tmp_path: Path) -> None:
    ck = tmp_path / "ck"
    (ck / "include" / "ck_tile").mkdir(parents=True)  # `scale` includes none of CK
    program = f"""
sys.path.insert(0, {str(plugin)!r})
import tilewright as tw
from click.testing import CliRunner
from tilewright.cli.app import root
from tilewright.dispatch.verify import verify
from tilewright.ops import find_op
op = find_op("scale")
plain = op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=3), "gfx942")
scratch = op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=11, scratch=256), "gfx942")
registry = tw.build([plain, scratch], jobs=1)
assert not registry.failures, registry.failures
problem = op.problem_type(300, "fp32")
for kernel, factor in ((plain, 3), (scratch, 11)):
    assert (registry.run(problem, x, device=device, kernel=kernel) == factor * x).all()
    checks = verify(kernel, registry.artifact(kernel), device, op.execution.trials(kernel.config, device.arch))
    assert all(check.ok for check in checks), checks
    assert checks[-1].counters.waves == 2, checks[-1].counters
done = CliRunner().invoke(root, ["verify", plain.slug, "--device", device.name])
assert done.exit_code == 0 and "all right: 3 problems" in done.output, done.output
# Tensors on the device, where the second call takes the short way.
with device.allocate(x.nbytes, "x") as a, device.allocate(x.nbytes, "y") as b:
    a.copy_from(x)
    given, out = tw.view_on(a, (300,), "fp32"), tw.view_on(b, (300,), "fp32")
    for _ in range(2):
        b.fill(0)
        assert registry.run(problem, given, out=out, device=device, kernel=plain) is out
        y = np.empty_like(x)
        b.copy_to(y)
        assert (y == 3 * x).all()
os.kill(hip_library.load_shim().pid, signal.SIGKILL)
print(raised(DeviceError, lambda: registry.run(problem, x, device=device, kernel=scratch)))
assert (registry.run(problem, x, device=device, kernel=scratch) == 11 * x).all()  # with another workspace
"""
    said = in_own_process(beside_hip(scale, program), TILEWRIGHT_CK=str(ck), TILEWRIGHT_STORE=str(STORE.root))
    assert "ended by signal 9 (Killed)" in said and "allocate and fill buffers again" in said


def test_faults_settings_and_records_are_the_callers(scale: ScaleLibrary) -> None:
    program = """
with device.recording() as outer:
    with device.mode(Mode.STRICT), device.recording() as inner:
        scale.tripled(device, x)
    scale.tripled(device, x)
assert [launch.mode for launch in outer] == [Mode.STRICT, Mode.FAST] and inner == outer[:1]
with device.emulating(limit=3):
    raised(EndlessLoopFault, scale.tripled, device, x)
with device.emulating(dry=True):
    assert scale.run(device, 0, 0, 10) == 0
with device.allocate(400, "small") as small:
    assert scale.run(device, small.address, small.address, 101) == 4
    assert "'small'" in raised(MemoryFault, device.synchronize)
    assert "it has 400" in raised(InvalidValueError, small.copy_from, bytes(401))
device.synchronize()
kept = {}
def other(n):
    with device.allocate(400, f"of {n}") as mine:
        scale.run(device, mine.address, mine.address, 101)
        kept[n] = raised(MemoryFault, device.synchronize)
threads = [threading.Thread(target=other, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(f"'of {n}'" in said for n, said in kept.items()) and len(kept) == 8, kept
stream, event = device.stream(), device.event()
event.record(stream)
event.synchronize()
print(raised(HipError, event.elapsed_ms, event)[:60])
"""
    assert "hipErrorNotSupported" in in_own_process(beside_hip(scale, program))


def test_buffers_are_freed_there_and_lost_with_the_process(scale: ScaleLibrary) -> None:
    program = """
for _ in range(20):  # 20 GB one after another, of 8
    kept = device.allocate(1 << 30)
    del kept
lost = device.allocate(16, "lost")
lost.copy_from(bytes(range(16)))
back = bytearray(16)
lost.copy_to(back)
assert back == bytes(range(16)) and lost.alive
first = hip_library.load_shim().pid
os.kill(first, signal.SIGKILL)
print(raised(DeviceError, device.synchronize))
assert not lost.alive
assert "was lost" in raised(DeviceError, lost.copy_to, back)
assert "was lost" in raised(DeviceError, lost.free)
assert (scale.tripled(device, x) == 3 * x).all()
assert hip_library.load_shim().pid != first
"""
    said = in_own_process(beside_hip(scale, program))
    assert "ended by signal 9 (Killed)" in said and "The next use starts another process" in said


def test_what_it_cannot_do_is_an_error(scale: ScaleLibrary) -> None:
    program = """
from tilewright.runtime.device import simulate_time
library = device.library(scale.path)
args = Args(ctypes.sizeof(Args), 0, 0, 1)
print(raised(DeviceError, library[f"{scale.symbol}_run"], ctypes.addressof(args), None))
print(raised(DeviceError, lambda: library["tw_other"]))
print(raised(DeviceError, lambda: device.library(Path("/nowhere/lib.so"))))
print(raised(DeviceError, device.call, "hipMemcpy", 16, 16, 4, 4))
print(raised(DeviceError, lambda: simulate_time(device.index, [1.0]).__enter__()))
child = os.fork()
if child == 0:
    said = raised(DeviceError, device.allocate, 16)
    assert "'spawn'" in said, said
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert (scale.tripled(device, x) == 3 * x).all()
"""
    said = in_own_process(beside_hip(scale, program)).splitlines()
    assert "ctypes.byref(struct)" in said[0]
    assert "tw_other" in said[1] and "_run, _workspace_size, _message" in said[1]
    assert said[2].startswith("/nowhere/lib.so cannot be loaded")
    assert "direction 4" in said[3]
    assert "so the emulator cannot be loaded into it" in said[4]


def test_ctrl_c_comes_up_in_the_caller_and_stops_the_launch(scale: ScaleLibrary) -> None:
    program = """
n = 1 << 25  # the launch takes seconds on a fast machine, too
before, last = hip_library.load_shim().pid, np.ones(n, np.float32)
with device.allocate(4 * n, "x") as a, device.allocate(4 * n, "y") as b, device.emulating(engine="numpy"):
    a.fill(0)
    b.copy_from(last)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    raised(KeyboardInterrupt, scale.run, device, a.address, b.address, n)
    b.copy_to(last)
assert (scale.tripled(device, x) == 3 * x).all()
assert hip_library.load_shim().pid == before
print(last[0], last[-1])
"""
    assert in_own_process(beside_hip(scale, program)) == "0.0 1.0\n"


def test_a_second_ctrl_c_ends_a_process_that_does_not_answer(scale: ScaleLibrary) -> None:
    program = """
kept = device.allocate(16)
stuck = hip_library.load_shim().pid
os.kill(stuck, signal.SIGSTOP)
for seconds in (0.2, 0.5):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
raised(KeyboardInterrupt, device.synchronize)
assert not kept.alive
assert (scale.tripled(device, x) == 3 * x).all()
print(hip_library.load_shim().pid != stuck)
"""
    assert in_own_process(beside_hip(scale, program)) == "True\n"


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_process_is_left(scale: ScaleLibrary, end: str) -> None:
    program = f"""
device.allocate(16)
print(hip_library.load_shim().pid, flush=True)
{end}
"""
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", beside_hip(scale, program)]
    done = subprocess.run(command, env=surroundings, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == (-signal.SIGKILL if end else 0)
    pid, deadline = int(done.stdout), time.monotonic() + 10
    while is_running(pid):  # the system ends it at once, which takes a moment
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether there is a process that has not ended; one whose parent is gone may wait for its burial."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
