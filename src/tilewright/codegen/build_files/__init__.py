"""Build files that compile a folder of wrappers to one shared library: CMake, Ninja and Make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.base.errors import InvalidValueError, choose
from tilewright.codegen.build_files import cmake, make, ninja
from tilewright.codegen.build_files.recipe import LibraryTarget

# Characters with a special meaning in dependency files that the tools do not escape: a name with one of them is split
# or read as a rule. Determined by building with each printable character in a file name and in a folder name, with
# ninja 1.11, GNU make 4.3 and CMake 3.25 (for both); tests/codegen/test_wrap_odd_names.py repeats this.
_NINJA = frozenset("&'*;<>?\\^`|\t")
_MAKE = frozenset(":;=[\\|\t")
_CMAKE = _NINJA | _MAKE | frozenset("#$")
# CMake writes absolute paths into its files.
_CMAKE_FOLDERS = _CMAKE | frozenset('%]"')


@dataclass(frozen=True)
class BuildSystem:
    """One kind of build file, and the characters it does not support in header names and its folder name."""

    name: str
    file: str
    render: Callable[[LibraryTarget], str]
    use: str  # the build command to show to users
    refused: frozenset[str]
    refused_folders: frozenset[str] = frozenset()

    def check_names(self, headers: Iterable[str], folder: str) -> None:
        """Raise `InvalidValueError` for a name that this build system does not support."""
        for what, path, refused in (
            *(("the header", header, self.refused) for header in headers),
            ("the folder", folder, self.refused_folders),
        ):
            found = next((character for character in path if character in refused), None)
            if found is not None:
                raise InvalidValueError(
                    f"{self.name} does not support {found!r} in the name of {what} {path!r}. "
                    "Rename it, or use another build system."
                )


BUILD_SYSTEMS = (
    BuildSystem("cmake", cmake.FILE, cmake.render, "cmake -B build && cmake --build build", _CMAKE, _CMAKE_FOLDERS),
    BuildSystem("ninja", ninja.FILE, ninja.render, "ninja", _NINJA),
    BuildSystem("make", make.FILE, make.render, "make -j", _MAKE),
)


def find_build_system(name: str) -> BuildSystem:
    """Find a build system by name."""
    known = {system.name: system for system in BUILD_SYSTEMS}
    return known[choose("build system", name, known)]
