"""The toolchain that compiles kernels: available components, the chosen kind, and its flags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.digest import compute_tree_digest, digest_text, to_canonical_json
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import GPU_LESS, PYPI, ROCM
from tilewright.building import ck_headers, flags
from tilewright.building.components import Component
from tilewright.building.discover import DISTRIBUTION, Discovery, discover
from tilewright.building.flags import link_flags
from tilewright.building.from_pypi.manifest import HIP, get_toolchain_folder

__all__ = ["GPU_LESS", "PYPI", "ROCM", "Component", "Survey", "Toolchain", "find_toolchain", "survey_toolchains"]


@dataclass(frozen=True, slots=True)
class Survey:
    """The components of all kinds of toolchain, and the kind that is used (None: none is complete)."""

    kinds: Mapping[str, tuple[Component, ...]]
    ck: Component
    chosen: str | None
    reason: str

    @property
    def components(self) -> tuple[Component, ...]:
        """All components of all kinds and the CK headers."""
        return (*chain.from_iterable(self.kinds.values()), self.ck)

    def list_components(self) -> Iterator[tuple[str, Component]]:
        """Every component with its toolchain, the one in use first; the CK headers belong to all."""
        for kind in sorted(self.kinds, key=lambda kind: kind != self.chosen):
            for part in self.kinds[kind]:
                yield kind, part
        yield "all", self.ck

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        parts = [{"toolchain": kind, **part.to_json()} for kind, part in self.list_components()]
        return {"chosen": self.chosen, "reason": self.reason, "components": parts}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Programs and folders with which kernels are compiled. Created by `find_toolchain`."""

    kind: str
    cxx: Path
    compiler: str  # the compiler's own version text
    compiler_digest: str  # of the compiler, its headers, its linker and their LLVM libraries
    system_digest: str  # of the C++ library's headers and the C library's version
    objdump: Path | None  # None if the compiler adds a listing to code objects, which says the same
    readelf: Path | None
    bundler: Path | None  # only needed to embed code objects in a shared library, see `require_bundler`
    rocm_path: Path
    bitcode_dir: Path
    bitcode_digest: str
    ck_include: Path
    ck_digest: str
    hip_version: str
    hip_digest: str

    def device_flags(self, arch: Arch, compat: str = "") -> tuple[str, ...]:
        """Flags that compile a source to a plain code object for `arch`. `compat` replaces the path of the
        compatibility header that is included first, where one is needed."""
        return flags.device_flags(arch, self.flag_paths(compat), self._libraries(arch))

    def host_flags(self, compat: str = "") -> tuple[str, ...]:
        """Flags of the host pass; the caller adds the action (-c, -fsyntax-only)."""
        return flags.host_flags(self.flag_paths(compat))

    def compat_files(self) -> dict[str, str]:
        """The compatibility header, if needed, as a file to store with other headers."""
        header = self._find_compat()
        return {flags.COMPAT_COPY: header.read_text("utf-8")} if header is not None else {}

    def link_flags(self) -> tuple[str, ...]:
        """Flags that link kernel libraries. They contain no folders."""
        return link_flags(self.kind)

    def key_flags(self, arch: Arch) -> tuple[str, ...]:
        """The device flags with placeholders for this machine's folders: equal on every machine."""
        return flags.device_flags(arch, flags.NOWHERE, self._libraries(arch))

    def host_key_flags(self) -> tuple[str, ...]:
        """The host flags with placeholders for this machine's folders."""
        return flags.host_flags(flags.NOWHERE)

    def identity(self) -> str:
        """Everything that determines the generated code except source, flags and CK headers; contains no folders."""
        facts = {
            "kind": self.kind,
            "compiler": self.compiler,
            "compiler_digest": self.compiler_digest,
            "system": self.system_digest,
            "hip": [self.hip_version, self.hip_digest],
            "device_libraries": self.bitcode_digest,
            "compat": {name: digest_text(text) for name, text in self.compat_files().items()},
        }
        return to_canonical_json(facts)

    def require_bundler(self) -> Path:
        """Return the bundler; raise `ToolchainError` if it is missing."""
        if self.bundler is not None:
            return self.bundler
        listed = discover().kinds[self.kind]
        missing = [str(part) for part in listed if part.name == "bundler"]
        raise ToolchainError("\n".join(missing) or f"the {self.kind} toolchain has no bundler of code objects")

    def flag_paths(self, compat: str = "") -> flags.FlagPaths:
        """The paths that the flags contain. `compat` replaces the path of the compatibility header."""
        header = self._find_compat()
        front = "" if header is None else compat or str(header)
        return flags.FlagPaths(str(self.rocm_path), str(self.bitcode_dir), str(self.ck_include), front)

    def _find_compat(self) -> Path | None:
        """Return the compatibility header for this kind's HIP headers; None if they match the compiler."""
        return {PYPI: flags.COMPAT_PYPI, GPU_LESS: flags.COMPAT}.get(self.kind)

    def _libraries(self, arch: Arch) -> tuple[str, ...]:
        return flags.list_gpu_less_libraries(arch, self.bitcode_dir) if self.kind != ROCM else ()


def survey_toolchains() -> Survey:
    """Find the components of all kinds of toolchain. Missing ones are values, never exceptions."""
    found = discover()
    return Survey(found.kinds, _find_ck(found), found.chosen, found.reason)


def find_toolchain(*, with_ck: bool = True) -> Toolchain:
    """Find the current toolchain. Raises `ToolchainError` with every missing component and how to install it.

    Without CK Tile's headers (`with_ck`), it compiles sources that do not include them.
    """
    found = discover()
    ck = _find_ck(found) if with_ck else None
    missing = [part for part in (*found.parts, *([ck] if ck is not None else [])) if part.blocks]
    if found.chosen is None or missing:
        raise ToolchainError(_describe_missing(found, missing))
    parts = {part.name: part for part in found.parts}
    driver = parts["compiler"].driver
    if driver is None:
        raise ToolchainError(str(parts["compiler"]))
    bitcode = _require_path(parts["device-libraries"])
    ck_include = _require_path(ck) if ck is not None else None
    return Toolchain(
        kind=found.chosen,
        cxx=_require_path(parts["compiler"]),
        compiler=parts["compiler"].version,
        compiler_digest=driver.compute_digest(),
        system_digest=driver.compute_system_digest(),
        objdump=_find_path(parts, "objdump"),
        readelf=_find_path(parts, "readelf"),
        bundler=_find_path(parts, "bundler"),
        rocm_path=_find_rocm_path(found),
        bitcode_dir=bitcode,
        bitcode_digest=compute_tree_digest(bitcode),
        ck_include=ck_include if ck_include is not None else Path("no-ck"),
        ck_digest=compute_tree_digest(ck_include) if ck_include is not None else "",
        hip_version=parts["hip-headers"].version,
        hip_digest=compute_tree_digest(_require_path(parts["hip-headers"])),
    )


def _find_ck(found: Discovery) -> Component:
    return ck_headers.find_ck_component(found.rocm_root if found.chosen == ROCM else None)


def _find_rocm_path(found: Discovery) -> Path:
    """Return the folder whose include/ has HIP's headers."""
    if found.chosen == ROCM:
        return found.rocm_root
    return get_toolchain_folder() / HIP if found.chosen == PYPI else DISTRIBUTION


def _find_path(parts: Mapping[str, Component], name: str) -> Path | None:
    """Return the path of a component that a kind of toolchain may lack."""
    part = parts.get(name)
    return part.path if part is not None and part.ok else None


def _require_path(part: Component) -> Path:
    if part.path is None:
        raise ToolchainError(str(part))
    return part.path


def _describe_missing(found: Discovery, missing: Iterable[Component]) -> str:
    lines = [f"  {part}" for part in missing]
    count = f"{len(lines)} part{'s' if len(lines) != 1 else ''} missing"
    return "\n".join([f"kernels cannot be compiled, {count} ({found.reason}):", *lines])
