"""The programs that a compiler driver runs. TILEWRIGHT_CXX may be a script, and ROCm's amdclang++ only starts clang.

With `-###` a driver prints the commands that it would run, and runs none of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tilewright.base.digest import compute_files_digest, compute_tree_digest, digest_value
from tilewright.base.errors import ToolchainError
from tilewright.building.process import read_all_output, read_tool_output

# Disables config files that clang reads by default (clang++.cfg next to it, in /etc and in the home folder): their
# flags are not part of any key.
NO_CONFIG_FILES = "--no-default-config"
# A device pass for a GPU that every clang since 17 supports, without HIP, which may be missing. With -save-temps:
# otherwise the driver creates temporary files although it runs nothing.
_QUESTION = (
    NO_CONFIG_FILES, "-###", "-save-temps", "-x", "hip", "--offload-arch=gfx942", "--cuda-device-only",
    "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-std=c++17", "-cuid=0", "-c", "/dev/null",
)  # fmt: skip
# Followed by a folder of this machine that the driver determines; its contents are hashed instead.
_SYSTEM_FOLDERS = ("-internal-isystem", "-internal-externc-isystem")
_MACHINE_FOLDERS = (*_SYSTEM_FOLDERS, "-isysroot", "-resource-dir", "-o")
_MACHINE_PREFIXES = ("-fdebug-compilation-dir=", "-fcoverage-compilation-dir=")
# "libLLVM.so.22.1 => /lib/x86_64-linux-gnu/libLLVM.so.22.1 (0x00007fe172800000)", printed by the dynamic linker. The C
# library and others do not affect the generated code, and differ between machines.
_LLVM_LIBRARY = re.compile(r"^\s*lib(?:clang|LLVM|lld)\S* => (?P<path>/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Driver:
    """The programs, headers and flags that a driver uses for device code."""

    version: str
    program: Path  # the driver: a compiler, a script, or a link to one of them
    compiler: Path  # the program that compiles
    linker: Path | None  # the program that links device code; None if the driver found none
    resources: Path  # clang's own headers
    system: tuple[Path, ...]  # system include folders, in search order
    arguments: tuple[str, ...]  # of the compiler, without folders of this machine

    def compute_digest(self) -> str:
        """Compute the digest of this driver's programs and headers, independent of their folders."""
        files = {self.program.resolve(), self.compiler, *([self.linker] if self.linker else [])}
        for path in (self.compiler, self.linker):
            files |= set(_list_llvm_libraries(path) if path is not None else ())
        contents = sorted({path.resolve() for path in files}, key=lambda path: path.name)
        return digest_value([compute_files_digest(contents), compute_tree_digest(self.resources), self.arguments])

    def compute_system_digest(self) -> str:
        """Compute the digest of the C++ library's headers and of the header that defines the C library's version.

        Templates of the C++ library end up in device code, and host code needs the libraries that it was compiled for.
        The rest of /usr/include is left out: nearly all of it belongs to other packages.
        """
        found = [path for path in self.system if path.is_dir()]
        library = [path for path in found if "c++" in path.parts]
        whole = [path for path in library if not any(path != other and path.is_relative_to(other) for other in library)]
        stated = [path / "features.h" for path in found if (path / "features.h").is_file()]
        return digest_value([[compute_tree_digest(path) for path in whole], compute_files_digest(stated[:1])])


def inspect_driver(program: Path) -> Driver:
    """Read the commands that a compiler driver would run. Raises `ToolchainError` if it prints none."""
    said = read_all_output((str(program), *_QUESTION))
    commands = [shlex.split(line) for line in said.splitlines() if line.startswith(' "')]
    compilers = [words for words in commands if words[1:2] == ["-cc1"]]
    version = find_version_line(said)
    if not compilers:
        raise ToolchainError(f"{program} is not clang: its version is {version!r}, and -### prints no command")
    compiler = compilers[0]  # reads the headers
    resources = Path(next(_list_values_after(compiler, "-resource-dir"), ""), "include")
    if not resources.is_dir():
        raise ToolchainError(f"{program} has no headers of its own: {resources} does not exist")
    linkers = [words[0] for words in commands if words[1:2] not in (["-cc1"], ["-cc1as"])]
    system = [Path(folder).resolve() for name in _SYSTEM_FOLDERS for folder in _list_values_after(compiler, name)]
    return Driver(
        version=version,
        program=program,
        compiler=Path(compiler[0]).resolve(),
        linker=Path(linkers[-1]).resolve() if linkers and linkers[-1].startswith("/") else None,
        resources=resources,
        system=tuple(dict.fromkeys(system)),
        arguments=tuple(word for words in compilers for word in _drop_folders(words[1:])),
    )


def find_version_line(text: str) -> str:
    """Find the line with the version in the output of `--version`; unlike other lines it contains no folders."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if " version " in line), lines[0] if lines else "")


def _list_values_after(words: Sequence[str], name: str) -> Iterator[str]:
    return (word for before, word in pairwise(words) if before == name)


def _drop_folders(words: Sequence[str]) -> Iterator[str]:
    for before, word in pairwise(["", *words]):
        if word not in _MACHINE_FOLDERS and before not in _MACHINE_FOLDERS and not word.startswith(_MACHINE_PREFIXES):
            yield word


def _list_llvm_libraries(program: Path) -> list[Path]:
    """List the LLVM shared libraries that the dynamic linker currently loads for a program."""
    # As ldd does: the dynamic linker lists the libraries and does not start the program.
    listed = read_tool_output(["/usr/bin/env", "LD_TRACE_LOADED_OBJECTS=1", str(program)], allow_failure=True)
    return [Path(path) for path in _LLVM_LIBRARY.findall(listed)]
