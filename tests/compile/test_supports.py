"""The fit rules in Python and `supports` of the built kernel give the same answer.

The host side of a kernel is compiled for real and asked through its C interface. No device code is needed for
that, so the place where it would be embedded is filled with a stand-in symbol.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.build.toolchain import Toolchain, find
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

MAX_D = 8
TW_OK, TW_BAD_ARGS, TW_UNSUPPORTED = 0, 1, 2
BASE: dict[str, Any] = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": (64, 64, 32),
    "waves": (2, 2, 1),
    "mma": (32, 32, 8),
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "cshuffle",
}
KERNELS: list[dict[str, Any]] = [
    {"split_k": True},
    {"layout": "crr", "pad_n": True, "pipeline": "mem", "mma": (16, 16, 16), "split_k": True},
    {"layout": "ccr", "pad_m": True, "pad_k": True, "pipeline": "compv4"},
    {"variant": "multi_d", "num_d": 2, "elementwise": "MultiDAdd", "pad_k": True},
    {"variant": "batched", "layout": "rrr", "epilogue": "default", "pad_n": True},
    {"pipeline": "compv6", "dtype": "bf16", "pad_m": True, "pad_k": True, "split_k": True},
    {
        "variant": "preshuffle",
        "pipeline": "preshufflev2",
        "scheduler": "default",
        "waves": (1, 4, 1),
        "mma": (16, 16, 16),
        "pad_k": True,
        "pad_n": True,
    },
]
SIZES = [32, 64, 72, 100, 127, 128, 192]


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
    source = tw.render(kernel)
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


@pytest.mark.parametrize("overrides", KERNELS, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_python_and_the_built_kernel_agree(overrides: dict[str, Any], tmp_path: Path) -> None:
    config = tw.gemm.config(**{**BASE, **overrides})
    kernel = tw.kernel_of(config, "gfx942")
    library = host_library(kernel, find(), tmp_path)
    supports = getattr(library, f"{kernel.symbol}_supports")
    message = getattr(library, f"{kernel.symbol}_message")
    message.restype = ctypes.c_char_p
    counts = {True: 0, False: 0}
    batches = (1, 3) if config.variant == "batched" else (1, 2)
    for m, n, k, k_batch, batch in itertools.product(SIZES, SIZES, SIZES, (1, 2, 3), batches):
        problem = tw.gemm.Problem(
            m=m, n=n, k=k, k_batch=k_batch, batch=batch, layout=config.layout, dtype=config.dtype_a,
            num_d=config.num_d, elementwise=config.elementwise,
        )  # fmt: skip
        violations = tw.fits(config, problem, "gfx942")
        status = supports(ctypes.byref(args_of(problem)))
        assert status in (TW_OK, TW_UNSUPPORTED)
        assert (status == TW_OK) == (not violations), (problem, violations, message())
        counts[status == TW_OK] += 1

    assert min(counts.values()) > 20
    name = getattr(library, f"{kernel.symbol}_name")
    name.restype = ctypes.c_char_p
    assert name().decode() == kernel.slug
    assert supports(ctypes.byref(Args(size=8))) == TW_BAD_ARGS
    assert b"older ABI" in message()
