"""Streams and capture: a call after the first one makes one launch in the current stream and nothing else.

The HIP shim refuses calls that a graph cannot contain while a stream is captured, as HIP does: allocations, copies of
host memory, synchronisation, and work in the default stream.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.functions.kernels import ARCH, OPERATIONS, PRODUCTS
from tilewright.base.errors import TilewrightError
from tilewright.emulator.hip_shim.shim import HipShim, open_shim

pytestmark = pytest.mark.compile
RELAXED = 2
ROOT = Path(__file__).resolve().parents[2]


def capture(shim: HipShim, stream: Any, work: Any) -> tuple[int, int, list[str]]:
    """The status of a capture, the number of recorded calls, and the refused ones."""
    graph = ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.handle)
    assert shim.library.hipStreamBeginCapture(handle, RELAXED) == 0
    work()
    status = shim.library.hipStreamEndCapture(handle, ctypes.byref(graph))
    shim.library.hipGetLastError()  # later launches would report it
    return status, shim.count_captured(), shim.list_refused()


@pytest.fixture
def arrays() -> dict[str, Any]:
    device = tw.Device(f"emulated:{ARCH}")
    shapes = {"a": (32, 32), "b": (32, 32), "bias": (32,), "out": (32, 32)}
    made = {}
    for name, shape in shapes.items():
        buffer = device.allocate(int(np.prod(shape)) * 4)
        buffer.fill(0)
        made[name] = tw.view_on(buffer, shape, "fp32", (1, 32) if name == "b" else None)
    return made


@pytest.mark.parametrize("bias", [False, True])
def test_a_call_after_the_first_is_one_launch(arrays: dict[str, Any], bias: bool) -> None:
    stream = tw.Device(f"emulated:{ARCH}").stream()
    given = arrays if bias else {name: array for name, array in arrays.items() if name != "bias"}
    with tw.options(pool=(*PRODUCTS, *OPERATIONS)):
        tw.matmul(**given, stream=stream)
        found = capture(open_shim(), stream, lambda: tw.matmul(**given, stream=stream))
    assert found == (0, 1, [])


def test_an_activation_without_bias_allocates_only_once(arrays: dict[str, Any]) -> None:
    stream = tw.Device(f"emulated:{ARCH}").stream()
    given = {name: array for name, array in arrays.items() if name != "bias"}
    with tw.options(pool=OPERATIONS):
        tw.matmul(**given, activation="silu", stream=stream)
        found = capture(open_shim(), stream, lambda: tw.matmul(**given, activation="silu", stream=stream))
    assert found == (0, 1, [])


def test_the_shim_refuses_what_a_graph_cannot_contain(arrays: dict[str, Any]) -> None:
    device = tw.Device(f"emulated:{ARCH}")
    stream = device.stream()
    given = {name: array for name, array in arrays.items() if name != "bias"}

    def break_rules() -> None:
        for call in (
            lambda: device.allocate(16),
            device.synchronize,
            stream.synchronize,
            lambda: tw.matmul(**given),  # in the default stream
        ):
            with pytest.raises(TilewrightError):
                call()

    with tw.options(pool=PRODUCTS):
        tw.matmul(**given)
        status, recorded, refused = capture(open_shim(), stream, break_rules)
    assert (status != 0, recorded) == (True, 0)
    assert refused == ["hipMalloc", "hipDeviceSynchronize", "hipStreamSynchronize", "hipLaunchKernel"]


CURRENT_STREAM = """
import ctypes, types
import numpy as np, torch, tilewright as tw
from ci_kernels import STORE
from tests.functions.kernels import PRODUCTS
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.runtime import Device, hip_library
hip_library.use_gpu_library(open_shim().path)
device = Device("gpu:1")

class Tensor:
    # A torch tensor on a GPU, as far as Tilewright reads it; torch of this machine has no GPU.
    requires_grad = False
    def __init__(self, shape):
        self.shape, self.dtype, self.device = shape, torch.float32, types.SimpleNamespace(type="cuda", index=1)
        self.buffer = device.allocate(int(np.prod(shape)) * 4)
        self.buffer.fill(0)
    def data_ptr(self): return self.buffer.address
    def stride(self): return (self.shape[1], 1)
    def is_neg(self): return False
    def storage_offset(self): return 0
    def untyped_storage(self): return types.SimpleNamespace(nbytes=lambda: self.buffer.nbytes)

a, b, c = (Tensor((32, 32)) for _ in range(3))
stream, written = device.stream(), []
torch.cuda.current_stream = lambda index: types.SimpleNamespace(cuda_stream=stream.handle)
torch.autograd.graph.increment_version = written.append
shim = open_shim()
with tw.options(pool=PRODUCTS):
    registry = tw.build(PRODUCTS)
    problem = tw.gemm.Problem(m=32, n=32, k=32, dtype="fp32", layout="rrr")
    for run in (lambda: tw.matmul(a, b, out=c), lambda: registry.run(problem, a, b, out=c)):
        run()
        graph = ctypes.c_void_p()
        assert shim.library.hipStreamBeginCapture(ctypes.c_void_p(stream.handle), 2) == 0
        written.clear()
        run()
        print(shim.library.hipStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)),
              shim.count_captured(), shim.list_refused(), set(written) == {c})
"""


# As CURRENT_STREAM, with an input that is copied and an explicit stream: torch is in this stream when it copies.
EXPLICIT_STREAM = """
import contextlib, types
import numpy as np, torch, tilewright as tw
from tests.functions.kernels import PRODUCTS
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.runtime import Device, hip_library
hip_library.use_gpu_library(open_shim().path)
device, log, current = Device("gpu:1"), [], [0]

class Tensor:
    requires_grad = False
    def __init__(self, shape, strides=None):
        self.shape, self.dtype, self.device = shape, torch.float32, types.SimpleNamespace(type="cuda", index=1)
        self.strides = strides or (shape[1], 1)
        self.buffer = device.allocate(shape[0] * self.strides[0] * 4)
        self.buffer.fill(0)
    def data_ptr(self): return self.buffer.address
    def stride(self): return self.strides
    def is_neg(self): return False
    def storage_offset(self): return 0
    def untyped_storage(self): return types.SimpleNamespace(nbytes=lambda: self.buffer.nbytes)
    def expand(self, shape): return self
    def permute(self, order): return self
    def contiguous(self):
        log.append(current[-1])
        return Tensor(self.shape)

@contextlib.contextmanager
def use(stream):
    current.append(stream)
    yield
    current.pop()

torch.cuda.stream = use
torch.cuda.ExternalStream = lambda handle, device: (handle, device)
torch.cuda.default_stream = lambda device: ("default", device)
torch.cuda.current_stream = lambda device: types.SimpleNamespace(cuda_stream=0)
torch.autograd.graph.increment_version = lambda tensor: None
a, b, c, stream = Tensor((32, 32), (64, 2)), Tensor((32, 32)), Tensor((32, 32)), device.stream()
with tw.options(pool=PRODUCTS):
    for chosen in (stream, 0, None):
        tw.matmul(a, b, out=c, stream=chosen)
print(log == [(stream.handle, 1), ("default", 1), 0])
"""


def run_program(text: str) -> list[str]:
    folders = [ROOT / "src", ROOT, ROOT / "tests", ROOT / "tools"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_torch_copies_in_the_stream_of_the_call() -> None:
    assert run_program(EXPLICIT_STREAM) == ["True"]


def test_torch_tensors_use_torchs_current_stream() -> None:
    """Each repeated call also counts up the version of its output."""
    assert run_program(CURRENT_STREAM) == ["0 1 [] True", "0 1 [] True"]
