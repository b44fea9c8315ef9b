"""The emulated GPUs and their instruction set generations."""

from __future__ import annotations

# EF_AMDGPU_MACH, the lowest 8 bits of e_flags (LLVM, "User Guide for AMDGPU Backend", table "AMDGPU e_flags").
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1201": 0x4E}
EMULATED = tuple(MACHINES)


def generation(arch: str) -> str:
    """Return gfx9, gfx11 or gfx12: the name without its last two characters, LLVM's minor version and stepping."""
    return arch[:-2]
