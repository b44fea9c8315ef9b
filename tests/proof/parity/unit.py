"""One kernel of CK's own generators: a source to compile, next to Tilewright's kernel with the same config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel


@dataclass(frozen=True)
class Unit:
    """A source of CK's with its folders, and Tilewright's kernel for the same config."""

    kernel: Kernel
    name: str  # CK's own name of the kernel
    headers: tuple[str, ...]  # that the source includes; they come first in a source for several units
    text: str
    folders: tuple[Path, ...]  # searched for included files
    flags: tuple[str, ...] = ()  # definitions that CK's build files add
    reason: str = ""  # why its code is expected to differ; empty if it must be equal

    @property
    def key(self) -> str:
        """Identifies the pair in records."""
        return f"{self.kernel.slug} {self.name}"


def make_kernel(op: str, gpu: str, **fields: Any) -> Kernel:
    """Make the kernel of a config. Raises `IllegalConfigError` when it is rendered, if a rule rejects it."""
    declared = find_op(op)
    return declared.make_kernel(declared.make_config(**declared.expand_shorthands(fields)), gpu)


def join_sources(units: Sequence[Unit]) -> str:
    """One source with CK's sources of several units, so that the headers are compiled once."""
    headers = dict.fromkeys(header for unit in units for header in unit.headers)
    texts = dict.fromkeys(unit.text for unit in units)
    return "\n".join([*(f'#include "{header}"' for header in headers), *texts, ""])


def join_folders(units: Sequence[Unit]) -> tuple[Path, ...]:
    """The folders that the source of several units needs."""
    return tuple(dict.fromkeys(folder for unit in units for folder in unit.folders))
