"""Make what the wheels do not have: the compiler's scripts, a folder of system headers and libraries for host code, and
the constants that ROCm's device libraries expect.

All of it is compiled from sources in the wheel ziglang, by the compiler of that wheel.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base import knobs
from tilewright.base.errors import ToolchainError
from tilewright.building.from_pypi.manifest import BITCODE, COMPILER, HIP
from tilewright.building.from_pypi.wheels import VERSION, ZIG_LIBRARY, Machine
from tilewright.building.process import read_all_output

_HERE = Path(__file__).parent
_HEADERS = "sysroot/usr/include"
_CXX_HEADERS = f"{_HEADERS}/c++/v1"
_LIBRARIES = "sysroot/usr/lib"
# Kernel libraries load with this version of glibc and later ones. The wheels of PyPI need the same.
_GLIBC = "2.28"
# Headers that triton leaves out of HIP's. CK Tile includes them, and uses its own types. Those of HIP include assert.
_UNUSED_HIP_HEADERS = ("hip_fp16.h", "hip_bf16.h", "hip_bfloat16.h")
# The parts of libc++ that streams, strings, exceptions and locks need; without file systems, regular expressions, …
_LIBCXX = (
    "algorithm", "atomic", "call_once", "charconv", "chrono", "condition_variable", "condition_variable_destructor",
    "error_category", "exception", "functional", "future", "hash", "ios", "ios.instantiations", "iostream", "locale",
    "memory", "mutex", "mutex_destructor", "new", "new_handler", "new_helpers", "ostream", "random", "shared_mutex",
    "stdexcept", "string", "system_error", "thread", "typeinfo", "vector", "verbose_abort",
)  # fmt: skip
_WITHOUT = ("cxa_demangle.cpp", "cxa_noexception.cpp")
_LIBUNWIND = (
    "libunwind.cpp", "UnwindLevel1.c", "UnwindLevel1-gcc-ext.c", "UnwindRegistersSave.S", "UnwindRegistersRestore.S",
    "gcc_personality_v0.c",
)  # fmt: skip
_LANGUAGES = {".cpp": "c++", ".c": "c", ".S": "assembler-with-cpp"}
_PLAIN = ("-O1", "-fPIC", "-w", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-nostdinc++")
_TIMEOUT_S = 600.0


def write_scripts(root: Path, machine: Machine) -> None:
    """Write the programs that are scripts. They contain no folder, so their digests are equal on all machines."""
    # The version is part of the compiler's digest, and so of all build keys: libraries may differ between versions.
    compiler = (_HERE / "clang++.sh").read_text("utf-8")
    compiler = compiler.replace("@TRIPLE@", machine.triple).replace("@VERSION@", VERSION)
    linker = (_HERE / "lld.sh").read_text("utf-8")
    for name, text in (("clang++", compiler), ("lld", linker), ("ld.lld", linker)):
        (root / "bin" / name).write_text(text, "utf-8")
    for program in (root / "bin").iterdir():
        program.chmod(0o755)


def merge_headers(root: Path, machine: Machine) -> None:
    """Merge zig's folders of C and C++ headers into one folder, as a system has it, and complete HIP's headers."""
    library = root / ZIG_LIBRARY
    # The first folder of a search has precedence, so it is copied last.
    for folder in reversed(machine.header_folders):
        shutil.copytree(library / "libc/include" / folder, root / _HEADERS, dirs_exist_ok=True)
    for part in ("libcxxabi", "libcxx"):
        shutil.copytree(library / part / "include", root / _CXX_HEADERS, dirs_exist_ok=True)
    shutil.copyfile(_HERE / "config_site.h", root / _CXX_HEADERS / "__config_site")
    _include_config_site(root / _CXX_HEADERS / "__config")
    for name in _UNUSED_HIP_HEADERS:
        (root / HIP / "include/hip" / name).write_text("#pragma once\n#include <cassert>\n", "utf-8")
    _write_hip_version(root / HIP)


def _include_config_site(header: Path) -> None:
    """Add the include that zig removed from libc++'s first header."""
    text = header.read_text("utf-8")
    first = "#include <__configuration/abi.h>"
    if text.count(first) != 1:
        raise ToolchainError(f"{header} is not the header of libc++ 22: it does not have one line {first!r}")
    header.write_text(text.replace(first, f"#include <__config_site>\n{first}"), "utf-8")


def _write_hip_version(hip: Path) -> None:
    """Write the file by which clang recognizes a HIP installation."""
    text = (hip / "include/hip/hip_version.h").read_text("utf-8")
    numbers = re.findall(r"^#define (HIP_VERSION_(?:MAJOR|MINOR|PATCH))\s+(\d+)", text, re.MULTILINE)
    (hip / "share/hip").mkdir(parents=True)
    (hip / "share/hip/version").write_text("".join(f"{name}={value}\n" for name, value in numbers), "utf-8")


def compile_libraries(root: Path, machine: Machine, work: Path, advance: Callable[[str], object]) -> None:
    """Compile the libraries that host code is linked with: stand-ins for glibc's, and libc++ as an archive."""
    libraries = root / _LIBRARIES
    libraries.mkdir(parents=True)
    _make_glibc_libraries(root, machine, work)
    advance("glibc")
    objects = work / "objects"
    objects.mkdir()
    cxx = str(root / COMPILER)
    jobs = list(_list_compilations(root / ZIG_LIBRARY))

    def compile_one(index: int) -> str:
        source, flags = jobs[index]
        made = str(objects / f"{index}-{source.stem}.o")
        _run([cxx, *_PLAIN, *flags, "-x", _LANGUAGES[source.suffix], "-c", str(source), "-o", made])
        return made

    with ThreadPoolExecutor(knobs.job_count()) as pool:
        made = list(pool.map(compile_one, range(len(jobs))))
    # Without times and users, so that the archive is equal on all machines.
    _run([str(root / "bin/zig"), "ar", "rcsD", str(libraries / "libc++.a"), *made])
    advance("libc++")


def _make_glibc_libraries(root: Path, machine: Machine, work: Path) -> None:
    """Let zig link a library, and take the libraries that it made for that."""
    source, cache = work / "empty.c", work / "cache"
    source.write_text("int tilewright_empty;\n", "utf-8")
    target = f"{machine.triple}.{_GLIBC}"
    zig = str(root / "bin/zig")
    folders = [f"ZIG_GLOBAL_CACHE_DIR={cache}", f"ZIG_LOCAL_CACHE_DIR={cache}", f"ZIG_LIB_DIR={root / ZIG_LIBRARY}"]
    made = str(work / "empty.so")
    _run(["/usr/bin/env", *folders, zig, "cc", "-target", target, "-O2", "-shared", str(source), "-o", made])
    for name in ("c", "m", "pthread", "dl", "ld"):
        shutil.copyfile(_find_one(cache, f"lib{name}.so.*"), root / _LIBRARIES / f"lib{name}.so")
    for name in ("c_nonshared", "compiler_rt"):
        shutil.copyfile(_find_one(cache, f"lib{name}.a"), root / _LIBRARIES / f"lib{name}.a")


def _find_one(cache: Path, pattern: str) -> Path:
    found = sorted(cache.glob(f"o/*/{pattern}"))
    if len(found) != 1:
        raise ToolchainError(f"zig made {len(found)} files {pattern} instead of 1")
    return found[0]


def _list_compilations(library: Path) -> Iterable[tuple[Path, tuple[str, ...]]]:
    """List the sources of libc++, libc++abi and libunwind with their flags."""
    cxx, abi, unwind = (library / name for name in ("libcxx", "libcxxabi", "libunwind"))
    site = ("-include", str(_HERE / "config_site.h"))
    headers = tuple(f"-I{folder}" for folder in (cxx / "include", cxx / "src", cxx / "libc", abi / "include"))
    shared = ("-std=c++23", *site, *headers, "-fvisibility-inlines-hidden", "-D_LIBCPP_BUILDING_LIBRARY")
    for name in _LIBCXX:
        yield cxx / "src" / f"{name}.cpp", (*shared, "-DLIBCXX_BUILDING_LIBCXXABI")
    own = ("-D_LIBCXXABI_BUILDING_LIBRARY", "-D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS")
    # Without it, the message before an abort contains names that need the demangler.
    quiet = ("-DLIBCXXABI_SILENT_TERMINATE", "-DHAVE___CXA_THREAD_ATEXIT_IMPL")
    for source in sorted((abi / "src").glob("*.cpp")):
        if source.name not in _WITHOUT:
            yield source, (*shared, *own, *quiet, f"-I{abi / 'src'}", f"-I{unwind / 'include'}")
    for name in _LIBUNWIND:
        alone = ("-std=c++17", "-fno-exceptions", "-fno-rtti") if name.endswith(".cpp") else ()
        flags = ("-funwind-tables", "-DNDEBUG", "-D_LIBUNWIND_HIDE_SYMBOLS", "-D_LIBUNWIND_IS_NATIVE_ONLY")
        yield unwind / "src" / name, (*alone, *flags, f"-I{unwind / 'include'}", f"-I{unwind / 'src'}")


def compile_constants(root: Path, work: Path) -> None:
    """Compile the control constants of the device libraries, under the names of ROCm's files."""
    flags = {
        "oclc_unsafe_math_off": ("unsafe_math_opt", 0),
        "oclc_finite_only_off": ("finite_only_opt", 0),
        "oclc_correctly_rounded_sqrt_on": ("correctly_rounded_sqrt32", 1),
        "oclc_daz_opt_off": ("daz_opt", 0),
        "oclc_wavefrontsize64_on": ("wavefrontsize64", 1),
        "oclc_wavefrontsize64_off": ("wavefrontsize64", 0),
    }
    texts = {stem: _format_constant("unsigned char", *fact) for stem, fact in flags.items()}
    texts["oclc_abi_version_500"] = _format_constant("int", "ABI_version", 500)
    for name in archs.arch_names():
        texts[f"oclc_isa_version_{name.removeprefix('gfx')}"] = _format_constant(
            "int", "ISA_version", compute_isa_version(archs.load(name))
        )
    target = ("-target", "amdgcn-amd-amdhsa", "-nogpulib", "-fvisibility=hidden", "-emit-llvm")
    for stem, text in texts.items():
        source = work / f"{stem}.c"
        source.write_text(text, "utf-8")
        made = root / BITCODE / f"{stem}.bc"
        _run([str(root / COMPILER), "-x", "c", *target, "-c", str(source), "-o", str(made)])


def compute_isa_version(arch: Arch) -> int:
    """Compute the number that device libraries compare: 9402 for gfx942, 9010 for gfx90a, 11000 for gfx1100."""
    digits = arch.name.removeprefix("gfx")
    return int(digits[:-2]) * 1000 + int(digits[-2]) * 100 + int(digits[-1], 16)


def _format_constant(kind: str, name: str, value: int) -> str:
    return f"__attribute__((address_space(4))) const {kind} __oclc_{name} = {value};\n"


def _run(command: Sequence[str]) -> None:
    read_all_output(command, timeout_s=_TIMEOUT_S)
