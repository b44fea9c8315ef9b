"""HIP programs in C++, compiled with the toolchain."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.arch import load
from tilewright.building.compile import compile_device
from tilewright.building.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[2]
GPU = "gfx942"
Run = Callable[..., subprocess.CompletedProcess[str]]


def compile_program(source: Path, folder: Path, *, gpu: str = GPU, flags: Sequence[str] = ()) -> Path:
    """Compile a HIP source to an executable, in two passes: the bundler that one pass needs may be missing."""
    # The compiler gets a copy of the source, so that the line table needs the name.
    toolchain, arch, text = find_toolchain(with_ck=False), load(gpu), f'#line 1 "{source}"\n{source.read_text()}'
    code, program = folder / f"{source.stem}.{gpu}.co", folder / f"{source.stem}.{gpu}"
    device = compile_device(text, arch, toolchain, code, extra_flags=flags)
    assert device.ok, device.log
    words = [
        *(word for word in toolchain.host_flags() if word != "-nogpulib"),
        f"--offload-arch={gpu}",
        *flags,
        *("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(code)),
        *("-nogpulib", str(source), "-x", "none", "-fuse-ld=lld", "-lamdhip64", "-o", str(program)),
    ]
    done = subprocess.run([str(toolchain.cxx), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program
