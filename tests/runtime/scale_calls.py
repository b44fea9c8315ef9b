"""Calling a kernel of `scale` as a C program would, and running tests in a process of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime import Device
from tilewright.runtime.device_objects import get_stream_handle

ROOT = Path(__file__).resolve().parents[2]
OK, HIP_ERROR = 0, 4


class Args(ctypes.Structure):
    """The first fields of `tw_scale_args`: the kernel takes the others as 1, 1, null, 0."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("n", ctypes.c_int64),
    )


@dataclass(frozen=True)
class ScaleLibrary:
    path: Path
    symbol: str

    def run(self, device: Device, x: int, y: int, n: int, stream: object = None) -> int:
        """The status of a launch."""
        library = device.library(self.path)
        args = Args(ctypes.sizeof(Args), x, y, n)
        function = getattr(library, f"{self.symbol}_run")
        with device.make_current():
            status: int = function(ctypes.byref(args), ctypes.c_void_p(get_stream_handle(stream)))
        return status

    def tripled(self, device: Device, x: NDArray[np.float32], stream: object = None) -> NDArray[np.float32]:
        """What the kernel makes of an array."""
        with device.allocate(x.nbytes, "x") as source, device.allocate(x.nbytes, "y") as target:
            source.copy_from(x)
            if self.run(device, source.address, target.address, x.size, stream) != OK:
                device.raise_pending("scale failed")
            y = np.full_like(x, np.nan)
            target.copy_to(y, stream)
            return y

    def program(self, text: str) -> str:
        """A program for a process of its own, in which `scale` is this library."""
        here = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        made = f"from scale_calls import *\nscale = ScaleLibrary(Path({str(self.path)!r}), {self.symbol!r})\n"
        return here + made + text


def in_own_process(program: str, **knobs: str) -> str:
    """What a Python program prints; it must end with code 0."""
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **knobs}
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
