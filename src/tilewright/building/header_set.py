"""Sets of headers to precompile: the headers that all kernels of an op include, parsed once per GPU and toolchain.

Launchers, which only some of these kernels include, are parsed with each kernel.

Precompiled headers do not change the generated code, so they are not part of kernel keys. They contain this machine's
folders, so they never leave its store. They also contain system headers, which no key covers completely: the list of
those that the compiler read is stored with their digest, and a precompiled header is used only while they are
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilewright.base.digest import compute_files_digest, digest_value, to_canonical_json
from tilewright.base.documents import parse_json
from tilewright.base.events import Notice, emit
from tilewright.building.store.files import translate_os_errors
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain

PRECOMPILED = "prefix.pch"
READ = "prefix.json"  # the system headers that were read, and their digest
DEPENDENCIES = "prefix.d"
_HEADER = "prefix.hpp"
# The key covers contents, so the compiler must not reject the precompiled header because of file times. Templates that
# the headers themselves use are instantiated here, not again for each kernel: 0.15 to 0.3 s per pass.
_PRECOMPILE = ("-Xclang", "-fno-pch-timestamp", "-fpch-instantiate-templates", "-fsyntax-only")


@dataclass(frozen=True)
class PchFlags:
    """Include path and precompiled-header flags for one compiler pass."""

    flags: tuple[str, ...]
    cpu_s: float = 0.0  # cost of precompiling; 0 if it was in the store


@dataclass(frozen=True)
class SystemHeaders:
    """The system headers that a precompiled header contains."""

    paths: tuple[Path, ...]
    digest: str

    def to_json(self) -> str:
        """Return JSON to store with the precompiled header."""
        return to_canonical_json({"paths": [str(path) for path in self.paths], "digest": self.digest})

    @classmethod
    def from_json(cls, text: str) -> SystemHeaders:
        """Parse the output of `to_json`."""
        values = parse_json(text)
        return cls(tuple(Path(path) for path in values["paths"]), values["digest"])

    @property
    def is_unchanged(self) -> bool:
        """Whether all headers exist with the same contents."""
        return compute_headers_digest(self.paths) == self.digest

    def has_changed_since(self, moment: float) -> bool:
        """Return whether a header was removed, or changed after `moment` (seconds since 1970)."""
        return not self.digest or any(path.stat().st_ctime > moment for path in self.paths)


def compute_headers_digest(paths: Sequence[Path]) -> str:
    """Compute the digest of some headers; empty if one is missing."""
    try:
        return compute_files_digest(paths)
    except FileNotFoundError:
        return ""


@dataclass(frozen=True)
class HeaderSet:
    """Headers to precompile with the flags of one pass."""

    name: str
    pass_flags: tuple[str, ...]
    headers: tuple[str, ...]
    files: Mapping[str, str]
    toolchain: Toolchain

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Our headers, and the one that includes all of them."""
        return {**self.files, _HEADER: "".join(f'#include "{name}"\n' for name in self.headers)}

    @cached_property
    def digest(self) -> str:
        """The digest of our headers; it names their folder."""
        return digest_value(dict(self.texts))

    def folder(self, store: Store) -> Path:
        """The folder of our headers, which must exist as long as the precompiled header may be used."""
        return store.root / "headers" / self.digest

    def key(self, store: Store) -> str:
        """The key of the precompiled header. It covers folders, since the precompiled header contains them."""
        return digest_value(
            {
                "prefix": self.name,
                "folder": str(self.folder(store)),
                "flags": (*self.pass_flags, *_PRECOMPILE),
                "headers": self.digest,
                "toolchain": self.toolchain.identity(),
                "ck": self.toolchain.ck_digest,
            }
        )

    def command(self, store: Store) -> tuple[str, ...]:
        """The command that writes the precompiled header into the current folder."""
        headers = self.folder(store)
        how = (*_PRECOMPILE, str(headers / _HEADER))
        output = ("-emit-pch", "-o", PRECOMPILED)
        listing = ("-dependency-file", DEPENDENCIES, "-MT", PRECOMPILED, "-sys-header-deps")
        inner = [word for flag in (*output, *listing) for word in ("-Xclang", flag)]
        return (str(self.toolchain.cxx), *self.pass_flags, *self.make_plain_flags(store).flags, *how, *inner)

    def find_system_headers(self, store: Store, dependencies: str) -> SystemHeaders:
        """Find the system headers in a dependency file. Ours and CK's are left out: the key covers them."""
        known = (self.folder(store), self.toolchain.ck_include)
        found = [
            path
            for path in _parse_dependencies(dependencies)
            if not any(path.is_relative_to(folder) for folder in known)
        ]
        return SystemHeaders(tuple(found), compute_headers_digest(found))

    def make_plain_flags(self, store: Store) -> PchFlags:
        """Return the flags to compile without a precompiled header."""
        folder = self.folder(store)
        # Not -I: edited copies of CK's headers must be found before CK's. The map is that of CK's folder.
        return PchFlags((f"-iquote{folder}", f"-ffile-prefix-map={folder}=ck"))

    def make_pch_flags(self, store: Store, precompiled: Path, cpu_s: float = 0.0) -> PchFlags:
        """Return the flags to compile with a precompiled header."""
        return PchFlags((*self.make_plain_flags(store).flags, "-include-pch", str(precompiled)), cpu_s)


def write_headers(prefix: HeaderSet, store: Store) -> None:
    """Write our headers to their folder. It is named after their contents, so a file that differs is damaged."""
    folder = prefix.folder(store)
    differing = [name for name, text in prefix.texts.items() if _read_content(folder / name) != text.encode()]
    if not differing:
        return
    with store.create_work_folder("headers") as private, translate_os_errors("write", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in differing:
            if (folder / name).exists():
                emit(Notice(f"{folder / name} was damaged and is written again"))
            (private / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (private / name).write_text(prefix.texts[name], encoding="utf-8")
            # Atomically: other processes may be reading it.
            (private / name).replace(folder / name)


def _parse_dependencies(dependencies: str) -> list[Path]:
    """Parse a dependency file that a compiler wrote for make; return its files without the target."""
    _, _, listed = dependencies.replace("\\\n", " ").partition(": ")
    words = re.findall(r"(?:\\.|\S)+", listed)
    plain = (re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in words)
    return [Path(word) for word in dict.fromkeys(plain)]


def _read_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
