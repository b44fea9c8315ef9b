"""A GPU that was used before a fork: the child's launches are refused, however short their way is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.base import knobs
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

ROOT = Path(__file__).resolve().parents[2]

# The stand-in takes the place of the library of real GPUs; gpu:1 is a gfx942 then.
PROGRAM = """
import os, sys
import numpy as np
import tilewright as tw
from tilewright.base.errors import DeviceError
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.ops import find_op, parse_kernel
from tilewright.runtime import hip_library

hip_library.use_gpu_library(open_shim().path)
gpu = tw.Device("gpu:1")
kernel = parse_kernel(sys.argv[1])
registry = tw.build(kernel, jobs=1)
op = find_op("scale")
problem = op.problem_type(100)
x = np.arange(100, dtype=np.float32)

def on_device():
    buffer = gpu.allocate(x.nbytes)
    buffer.copy_from(x)
    return tw.view_on(buffer, x.shape, "fp32")

given, out = on_device(), on_device()
functions = bind_functions(gpu, registry.artifact(kernel).verify_file("kernel.so"), kernel)
call = BoundKernel(gpu, kernel, functions, op.execution, problem)
attempts = {
    "host arrays": lambda: registry.run(problem, x, device=gpu),
    "device tensors": lambda: registry.run(problem, given, out=out),
    "the call itself": lambda: call([given.address, out.address], None),
    "another problem": lambda: registry.run(op.problem_type(50), x[:50], device=gpu),
}

def all_work():
    for attempt in list(attempts.values())[:3] * 3:
        attempt()

all_work()
child = os.fork()
if child == 0:
    for name, attempt in attempts.items():
        try:
            attempt()
        except DeviceError as error:
            print(name, "across a fork" in str(error), flush=True)
        else:
            print(name, "was launched", flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
all_work()
print("the parent goes on")
"""


def test_launches_of_a_child_are_refused(
    registry: tw.Registry, scale: Callable[..., Kernel], scale_store: Path
) -> None:
    surroundings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("src", "tests/plugin")),
        knobs.STORE.name: str(scale_store),
    }
    command = [sys.executable, "-c", PROGRAM, scale(2).slug]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    refused = ["host arrays", "device tensors", "the call itself", "another problem"]
    assert done.stdout.splitlines() == [*(f"{name} True" for name in refused), "the parent goes on"]
