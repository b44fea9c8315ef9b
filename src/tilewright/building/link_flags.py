"""How libraries with kernels are linked."""

from __future__ import annotations

from tilewright.building.discover import ROCM
from tilewright.building.toolchain import Toolchain

HIP_LIBRARY = "-lamdhip64"


def link_flags(toolchain: Toolchain) -> tuple[str, ...]:
    """Flags of the link step, the same for one kernel and for many."""
    # No build id and no host paths: the library is a function of its inputs.
    plain = ("-Wl,--build-id=none", "-Wl,--gc-sections", "-Wl,-O1")
    if toolchain.kind == ROCM:
        libraries = f"{toolchain.rocm_path}/lib"
        return (f"-L{libraries}", f"-Wl,-rpath,{libraries}", HIP_LIBRARY, *plain)
    # lld is a part of the toolchain; another linker need not be there.
    return ("-fuse-ld=lld", HIP_LIBRARY, *plain)
