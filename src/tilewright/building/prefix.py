"""Precompiled headers: what all kernels of an op include, parsed once per GPU and toolchain.

They change nothing in the code that comes out, so no key of a kernel knows of them. They do hold this machine's
folders, so they never leave its store. They also hold headers of the machine that no key knows as a whole: which ones
the compiler read is kept with their digest, and a precompiled form is used only while they are as they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilewright.base.digest import canonical_json, digest_value
from tilewright.base.documents import parse_json
from tilewright.base.events import Noticed, emit
from tilewright.building.store.faults import explained
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain
from tilewright.building.tree_digest import files_digest

PRECOMPILED = "prefix.pch"
READ = "prefix.json"  # which headers of the machine were read, and their digest
DEPENDENCIES = "prefix.d"
_HEADER = "prefix.hpp"


@dataclass(frozen=True)
class Roof:
    """The flags under which a kernel is compiled: where our own headers are, and what is precompiled of them."""

    flags: tuple[str, ...]
    cpu_s: float = 0.0  # what it cost now; 0 when it was there


@dataclass(frozen=True)
class HeadersRead:
    """The headers of the machine that a precompiled form was made of."""

    paths: tuple[Path, ...]
    digest: str

    def text(self) -> str:
        """JSON, to be kept beside the precompiled form."""
        return canonical_json({"paths": [str(path) for path in self.paths], "digest": self.digest})

    @classmethod
    def of_text(cls, text: str) -> HeadersRead:
        """Reads what `text` wrote."""
        values = parse_json(text)
        return cls(tuple(Path(path) for path in values["paths"]), values["digest"])

    @property
    def unchanged(self) -> bool:
        """Whether all of them are there with the same content."""
        return headers_digest(self.paths) == self.digest

    def changed_since(self, moment: float) -> bool:
        """Whether one of them is gone, or was changed after a moment in seconds since 1970."""
        return not self.digest or any(path.stat().st_ctime > moment for path in self.paths)


def headers_digest(paths: Sequence[Path]) -> str:
    """The digest of some headers; empty when one is gone."""
    try:
        return files_digest(paths)
    except FileNotFoundError:
        return ""


@dataclass(frozen=True)
class Prefix:
    """Headers to be precompiled with the flags of one pass."""

    name: str
    pass_flags: tuple[str, ...]
    headers: tuple[str, ...]
    files: Mapping[str, str]
    toolchain: Toolchain

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Our own headers, and the one that includes everything."""
        return {**self.files, _HEADER: "".join(f'#include "{name}"\n' for name in self.headers)}

    @cached_property
    def own(self) -> str:
        """The digest of our own headers, which names the folder they are kept in."""
        return digest_value(dict(self.texts))

    def folder(self, store: Store) -> Path:
        """Where our own headers lie for as long as a precompiled form of them may be used."""
        return store.root / "headers" / self.own

    def key(self, store: Store) -> str:
        """The key of the precompiled form. It knows folders, since the precompiled form does."""
        return digest_value(
            {
                "prefix": self.name,
                "folder": str(self.folder(store)),
                "flags": self.pass_flags,
                "headers": self.own,
                "toolchain": self.toolchain.identity(),
                "ck": self.toolchain.ck_digest,
            }
        )

    def command(self, store: Store) -> tuple[str, ...]:
        """What makes the precompiled form, in the folder where it is run."""
        headers = self.folder(store)
        # Contents are in the key, so times must not decide whether the precompiled form is accepted.
        how = ("-Xclang", "-fno-pch-timestamp", "-fsyntax-only", str(headers / _HEADER))
        output = ("-emit-pch", "-o", PRECOMPILED)
        listing = ("-dependency-file", DEPENDENCIES, "-MT", PRECOMPILED, "-sys-header-deps")
        inner = [word for flag in (*output, *listing) for word in ("-Xclang", flag)]
        return (str(self.toolchain.cxx), *self.pass_flags, f"-I{headers}", *how, *inner)

    def headers_read(self, store: Store, dependencies: str) -> HeadersRead:
        """The headers of the machine in a list of dependencies. Ours and CK's are left out: the key has them."""
        known = (self.folder(store), self.toolchain.ck_include)
        found = [path for path in _listed(dependencies) if not any(path.is_relative_to(folder) for folder in known)]
        return HeadersRead(tuple(found), headers_digest(found))

    def plain_roof(self, store: Store) -> Roof:
        """The flags to compile under without anything precompiled."""
        return Roof((f"-I{self.folder(store)}",))

    def roof(self, store: Store, precompiled: Path, cpu_s: float = 0.0) -> Roof:
        """The flags to compile under with the precompiled form in a file."""
        return Roof((*self.plain_roof(store).flags, "-include-pch", str(precompiled)), cpu_s)


def put_headers(prefix: Prefix, store: Store) -> None:
    """Write our own headers to their folder. Their content names it; a file with another one is damaged."""
    folder = prefix.folder(store)
    differing = [name for name, text in prefix.texts.items() if _content(folder / name) != text.encode()]
    if not differing:
        return
    with store.work_folder("headers") as private, explained("write", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in differing:
            if (folder / name).exists():
                emit(Noticed(f"{folder / name} was damaged and is written anew"))
            (private / name).write_text(prefix.texts[name], encoding="utf-8")
            # Whole or not at all: other processes may be reading it.
            (private / name).replace(folder / name)


def _listed(dependencies: str) -> list[Path]:
    """The files of a list of dependencies as compilers write it for make, without the target."""
    _, _, listed = dependencies.replace("\\\n", " ").partition(": ")
    words = re.findall(r"(?:\\.|\S)+", listed)
    plain = (re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in words)
    return [Path(word) for word in dict.fromkeys(plain)]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
