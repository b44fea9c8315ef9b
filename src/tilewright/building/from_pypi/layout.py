"""Where the files of the installed toolchain are, below its folder."""

from __future__ import annotations

COMPILER = "bin/clang++"
HIP = "hip"  # laid out like a ROCm installation
BITCODE = f"{HIP}/amdgcn/bitcode"
