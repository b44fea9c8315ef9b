"""HIP programs in C++, compiled with the toolchain."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tilewright.arch import load
from tilewright.building.compile import compile_device
from tilewright.building.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[2]
GPU = "gfx942"
Run = Callable[..., subprocess.CompletedProcess[str]]


def compile_program(source: Path, folder: Path, *, gpu: str = GPU) -> Path:
    """Compile a HIP source to an executable, in two passes: the bundler that one pass needs may be missing."""
    toolchain, arch, text = find_toolchain(with_ck=False), load(gpu), source.read_text()
    code, program = folder / f"{source.stem}.{gpu}.co", folder / f"{source.stem}.{gpu}"
    device = compile_device(text, arch, toolchain, code)
    assert device.ok, device.log
    words = [
        *(word for word in toolchain.host_flags() if word != "-nogpulib"),
        f"--offload-arch={gpu}",
        *("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(code)),
        *("-nogpulib", str(source), "-x", "none", "-fuse-ld=lld", "-lamdhip64", "-o", str(program)),
    ]
    done = subprocess.run([str(toolchain.cxx), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program
