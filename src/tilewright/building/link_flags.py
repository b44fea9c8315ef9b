"""The flags that link kernel libraries."""

from __future__ import annotations

from tilewright.building.discover import ROCM
from tilewright.building.driver import NO_CONFIG_FILES

HIP_LIBRARY = "-lamdhip64"


def link_flags(kind: str, rocm: str) -> tuple[str, ...]:
    """Flags of the link step, the same for one kernel and for many; `rocm` is the folder of a ROCm installation.

    No RPATH: the libraries are used on other machines, through a shared store or a pack. There the process loads its
    HIP library before it loads kernels, and the dynamic linker reuses a library of that name.
    """
    # No build id and no host paths: the library is a function of its inputs.
    plain = (NO_CONFIG_FILES, "-Wl,--build-id=none", "-Wl,--gc-sections", "-Wl,-O1")
    if kind == ROCM:
        return (f"-L{rocm}/lib", HIP_LIBRARY, *plain)
    # lld is part of the toolchain; another linker may be missing.
    return ("-fuse-ld=lld", HIP_LIBRARY, *plain)
