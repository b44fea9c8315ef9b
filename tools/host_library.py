"""The host side of a kernel, built and asked through its C interface on a machine without a GPU.

No device code is needed to ask what a kernel supports, so the place where it would be embedded is filled with a
stand-in symbol.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

from tilewright.building.toolchain import Toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.ops.kernel import Kernel

MAX_D = 8
TW_OK, TW_BAD_ARGS, TW_UNSUPPORTED = 0, 1, 2


class Args(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("d", ctypes.c_void_p * MAX_D),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "stride_a", "stride_b", "stride_c")),
        ("stride_d", ctypes.c_int64 * MAX_D),
        *((n, ctypes.c_int64) for n in ("k_batch", "batch", "batch_stride_a", "batch_stride_b", "batch_stride_c")),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_uint64),
    )


def args_of(problem: Any) -> Args:
    args = Args(size=ctypes.sizeof(Args))
    for name in ("m", "n", "k", "stride_a", "stride_b", "stride_c", "k_batch", "batch"):
        setattr(args, name, getattr(problem, name))
    for i in range(problem.num_d):
        args.stride_d[i] = problem.n
    args.batch_stride_a = problem.m * problem.k
    args.batch_stride_b = problem.k * problem.n
    args.batch_stride_c = problem.m * problem.n
    return args


def run(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, timeout=300).stdout


def host_library(kernel: Kernel, toolchain: Toolchain, folder: Path) -> ctypes.CDLL:
    source = render_unchecked(kernel)
    for name, text in {**source.files, "kernel.hip": source.text}.items():
        (folder / name).write_text(text)
    objects = folder / "kernel.o"
    run(toolchain.cxx, *toolchain.host_flags(), "-c", folder / "kernel.hip", "-o", objects)
    symbols = run(toolchain.readelf, "--symbols", "--wide", objects).split()
    embedded = {s for s in symbols if s.startswith("__hip_fatbin")}
    (folder / "stub.c").write_text("".join(f"const char {s}[64] = {{0}};\n" for s in embedded if "wrapper" not in s))
    library = folder / "kernel.so"
    run(toolchain.cxx, "-shared", "-fPIC", objects, "-x", "c", folder / "stub.c", "-o", library, "-lamdhip64")
    return ctypes.CDLL(str(library))


def supports(library: ctypes.CDLL, kernel: Kernel, args: Args) -> int:
    """The status of `supports` for these arguments."""
    status: int = getattr(library, f"{kernel.symbol}_supports")(ctypes.byref(args))
    return status


def text_of(library: ctypes.CDLL, kernel: Kernel, function: str) -> str:
    """What a function without arguments says: `message` or `name`."""
    call = getattr(library, f"{kernel.symbol}_{function}")
    call.restype = ctypes.c_char_p
    said: bytes = call()
    return said.decode()
