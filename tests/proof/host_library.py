"""Build only the host code of a kernel, and call its C interface on a machine without a GPU.

`supports` does not need device code, so an empty symbol replaces the embedded code object.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from ci_kernels import STORE
from tilewright.building.compile_job import HOST_OBJECT, CompileJob
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.ops.kernel import Kernel

TW_OK, TW_BAD_ARGS, TW_UNSUPPORTED = 0, 1, 2


def _run(*command: object, folder: Path | None = None) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=300, cwd=folder).stdout


def build_host_library(kernel: Kernel, toolchain: Toolchain, folder: Path) -> ctypes.CDLL:
    """Compile and load the host code of a kernel, with the command and the precompiled headers of a build."""
    job = CompileJob(render_unchecked(kernel), toolchain)
    for name, text in job.texts().items():
        (folder / name).write_text(text)
    _run(*job.host_command(prepare_header_set(job.host_headers, STORE)), folder=folder)
    objects = folder / HOST_OBJECT
    symbols = _run(toolchain.readelf, "--symbols", "--wide", objects).split()
    embedded = {s for s in symbols if s.startswith("__hip_fatbin")}
    (folder / "stub.c").write_text("".join(f"const char {s}[64] = {{0}};\n" for s in embedded if "wrapper" not in s))
    library = folder / "kernel.so"
    _run(toolchain.cxx, "-shared", "-fPIC", objects, "-x", "c", folder / "stub.c", "-o", library, "-lamdhip64")
    return ctypes.CDLL(str(library))


def call_supports(library: ctypes.CDLL, kernel: Kernel, args: ctypes.Structure) -> int:
    """Return the status of `supports` for these arguments."""
    status: int = getattr(library, f"{kernel.symbol}_supports")(ctypes.byref(args))
    return status


def call_text(library: ctypes.CDLL, kernel: Kernel, function: str) -> str:
    """Return the text of a function without arguments: `message` or `name`."""
    call = getattr(library, f"{kernel.symbol}_{function}")
    call.restype = ctypes.c_char_p
    text: bytes = call()
    return text.decode()
