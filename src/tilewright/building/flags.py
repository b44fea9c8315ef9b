"""The compiler flags of the device pass and the host pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewright.arch.spec import Arch
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import ROCM
from tilewright.building.discover import LIBRARIES, RETIRED_CALLERS, RETIRED_CONSTANTS
from tilewright.building.driver import NO_CONFIG_FILES

HIP_LIBRARY = "-lamdhip64"
# The HIP functions that every kernel library contains; they find HIP at run time.
HIP_FORWARD = Path(__file__).with_name("hip_forward.c")
# Not optimised: a call costs nanoseconds more, and compiling takes 0.1 s instead of 0.3 s for each kernel.
HIP_FORWARD_FLAGS = ("-x", "c", "-std=c11", "-O0", "-fPIC", "-ffunction-sections", "-fdata-sections")


def link_flags(kind: str) -> tuple[str, ...]:
    """Flags of the link step, the same for one kernel and for many.

    No HIP library and no RPATH: the libraries are used on other machines, where HIP has another version and folder.
    """
    # No build id and no host paths: the library is a function of its inputs. A HIP function that `HIP_FORWARD` lacks is
    # an error here, not when the library is loaded.
    plain = (NO_CONFIG_FILES, "-ldl", "-Wl,--no-undefined", "-Wl,--build-id=none", "-Wl,--gc-sections", "-Wl,-O1")
    # lld is part of the toolchain; another linker may be missing.
    return plain if kind == ROCM else ("-fuse-ld=lld", *plain)


COMPAT = Path(__file__).with_name("compat.h")
COMPAT_PYPI = Path(__file__).with_name("from_pypi") / "compat.h"
# The name of its copy among our headers in a store: precompiled headers must not contain the package's path.
COMPAT_COPY = "tilewright_compat.h"

# Which oclc_isa_version_*.bc to use for a GPU without a file of its own, by name prefix.
# The file only defines the constant __oclc_ISA_version. ockl and ocml 5.2.3 load it 135 times
# (llvm-dis) and compare it with 7001, 8001, 9008, 9009, 9010 and 10100 for equality and with 8000,
# 8999, 9000 and 9006 for order, nothing else. So every comparison gives the same result for 9400 as
# for 9402 and 9500, and for 10306 as for 11000 and 12000.
COMPATIBLE_TARGETS = (("gfx94", "940"), ("gfx95", "940"), ("gfx11", "1036"), ("gfx12", "1036"))


@dataclass(frozen=True, slots=True)
class FlagPaths:
    """The paths that flags contain, as text: real ones, or placeholders for a build key."""

    rocm: str
    bitcode: str
    ck: str
    compat: str  # empty if the headers match the compiler


# Placeholders for build keys: equal on every machine.
NOWHERE = FlagPaths(rocm="<rocm>", bitcode="<bitcode>", ck="<ck>", compat="<compat>")


def device_flags(arch: Arch, places: FlagPaths, libraries: tuple[str, ...]) -> tuple[str, ...]:
    """Flags of the device pass. If `libraries` is empty, the compiler uses those of its own ROCm."""
    linked = [
        flag
        for stem in libraries
        for flag in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{places.bitcode}/{stem}.bc")
    ]
    own = ["-nogpulib"] if libraries else [f"--rocm-device-lib-path={places.bitcode}"]
    return (
        "-x",
        "hip",
        f"--offload-arch={arch.name}",
        "--cuda-device-only",
        "--no-gpu-bundle-output",  # a plain code object, not a bundle around one
        "-c",
        "-O3",
        *_common_flags(places),
        *own,
        *linked,
    )


def host_flags(places: FlagPaths) -> tuple[str, ...]:
    """Flags of the host pass, without the action (-c, -fsyntax-only)."""
    return ("-x", "hip", "--cuda-host-only", "-O1", "-fPIC", *_common_flags(places), "-nogpulib")


def _common_flags(places: FlagPaths) -> tuple[str, ...]:
    return (
        NO_CONFIG_FILES,
        "-std=c++17",
        f"--rocm-path={places.rocm}",
        *(("-include", places.compat) if places.compat else ()),
        f"-I{places.ck}",
        # Keeps this machine's folders out of __FILE__ in CK's assertions, and so out of the code object.
        f"-ffile-prefix-map={places.ck}=ck",
        "-fno-crash-diagnostics",  # a crash is reported as a value; the reproducer is not used
        "-w",  # analysing CK Tile for warnings takes a tenth of the device pass
    )


def list_gpu_less_libraries(arch: Arch, bitcode: Path) -> tuple[str, ...]:
    """List the device libraries of a toolchain without ROCm for one GPU (names without .bc)."""
    wide = "on" if arch.wave_size == 64 else "off"

    def find_present(stems: tuple[str, ...]) -> list[str]:
        return [stem for stem in stems if (bitcode / f"{stem}.bc").is_file()]

    return (
        *find_present(RETIRED_CALLERS),
        *LIBRARIES,
        *find_present(RETIRED_CONSTANTS),
        f"oclc_wavefrontsize64_{wide}",
        f"oclc_isa_version_{_find_isa_file(arch.name, bitcode)}",
    )


def _find_isa_file(name: str, bitcode: Path) -> str:
    own = name.removeprefix("gfx")
    if (bitcode / f"oclc_isa_version_{own}.bc").is_file():
        return own
    for prefix, target in COMPATIBLE_TARGETS:
        if name.startswith(prefix):
            return target
    known = ", ".join(f"{prefix}*" for prefix, _ in COMPATIBLE_TARGETS)
    raise ToolchainError(
        f"{bitcode} has no oclc_isa_version_{own}.bc for {name}, and substitutes "
        f"are known only for {known}. Use a ROCm installation that supports {name} (set ROCM_PATH)."
    )
