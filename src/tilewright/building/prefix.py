"""Precompiled headers: what all kernels of an op include, parsed once per GPU and toolchain.

They change nothing in the code that comes out, so no key of a kernel knows of them. They do hold this machine's
folders, so they never leave its store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilewright.base.digest import digest_value
from tilewright.base.events import Noticed, emit
from tilewright.building.store.faults import explained
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain

PRECOMPILED = "prefix.pch"
_HEADER = "prefix.hpp"


@dataclass(frozen=True)
class Roof:
    """The flags under which a kernel is compiled: where our own headers are, and what is precompiled of them."""

    flags: tuple[str, ...]
    cpu_s: float = 0.0  # what it cost now; 0 when it was there


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
        output = ("-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang", PRECOMPILED)
        return (str(self.toolchain.cxx), *self.pass_flags, f"-I{headers}", *how, *output)

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


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
