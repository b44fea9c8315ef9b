"""The registry: kernels, and for those that were built their artifacts."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.base.errors import (
    CompileError,
    FileFormatError,
    FileProblem,
    InvalidValueError,
    TilewrightError,
    choose,
)
from tilewright.building.builder import LIMIT_S, Built, build_kernels
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.trace import trace_json
from tilewright.ops import op_named, parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.registry.library import load_library
from tilewright.registry.members import Kernels, kernels_of

SCHEMA = 1


@dataclass(frozen=True)
class Registry:
    """Kernels and what became of them. A value: building, filtering and loading give new ones.

    `results` has an artifact or a failure for each kernel that was built; a kernel without one was not built yet.
    """

    kernels: tuple[Kernel, ...]
    results: Mapping[Kernel, Artifact | Failure] = field(default_factory=dict)
    built: Built | None = field(default=None, compare=False, repr=False)  # the last build, for its figures

    @classmethod
    def of(cls, kernels: Kernels, arch: str | Sequence[str] | None = None) -> Registry:
        """A registry of kernels that are not built yet: of spaces, sets, configs or kernels."""
        return cls(kernels_of(kernels, arch))

    @property
    def artifacts(self) -> dict[Kernel, Artifact]:
        """The kernels that are built."""
        return {k: entry for k in self.kernels if isinstance(entry := self.results.get(k), Artifact)}

    @property
    def failures(self) -> dict[Kernel, Failure]:
        """The kernels that the compiler refused, with its log."""
        return {k: entry for k in self.kernels if isinstance(entry := self.results.get(k), Failure)}

    def __len__(self) -> int:
        return len(self.kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __contains__(self, kernel: object) -> bool:
        return kernel in self.kernels

    def build(
        self,
        max_workers: int | None = None,
        *,
        tiers: Tiers | None = None,
        limit_s: float = LIMIT_S,
        retry: bool = False,
        trace: Path | str | None = None,
    ) -> Registry:
        """Build what is not built: from the store where it is known, else with up to `max_workers` compilers at once.

        A kernel that fails fails alone: see `failures`. `trace` writes the build as a Chrome/Perfetto trace.
        """
        wanted = [k for k in self.kernels if not isinstance(self.results.get(k), Artifact)]
        built = build_kernels(wanted, jobs=max_workers, tiers=tiers, limit_s=limit_s, retry=retry)
        if trace is not None:
            Path(trace).write_text(json.dumps(trace_json(built.spans, built.units)), encoding="utf-8")
        return Registry(self.kernels, {**self.results, **built.results}, built)

    def find(self, **wanted: Any) -> Registry:
        """The kernels whose op, arch or config fields have these values: `find(arch="gfx942", pipeline="mem")`."""
        kept = tuple(k for k in self.kernels if all(_matches(k, name, value) for name, value in wanted.items()))
        return Registry(kept, {k: self.results[k] for k in kept if k in self.results})

    def kernel(self, slug: str) -> Kernel:
        """The kernel of that name; an error lists the nearest."""
        known = {k.slug: k for k in self.kernels}
        return known[choose("kernel of this registry", slug, known)]

    def artifact(self, kernel: Kernel) -> Artifact:
        """What was built of a kernel; `CompileError` with the log if it failed."""
        entry = self.results.get(kernel)
        if isinstance(entry, Artifact):
            return entry
        if entry is None:
            raise InvalidValueError(f"{kernel.slug} is not built: call build() first")
        errors = entry.facts.get("errors") or ["no error was named"]
        raise CompileError(f"{kernel.slug} was not built: {errors[0]}", entry.log)

    def library(self, kernel: Kernel) -> ctypes.CDLL:
        """The shared library of a built kernel, checked and loaded."""
        return load_library(self.artifact(kernel))

    def save(self, path: Path | str) -> None:
        """Write names and keys as JSON. The artifacts themselves stay in the store."""
        entries = [
            {"slug": k.slug, "key": entry.key if (entry := self.results.get(k)) is not None else None}
            for k in self.kernels
        ]
        document = {"schema": SCHEMA, "kernels": entries}
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str, store: Store | None = None) -> Registry:
        """Read what `save` wrote. Entries that the store no longer has are kernels that are not built."""
        source = store or Store()
        results: dict[Kernel, Artifact | Failure] = {}
        kernels = []
        for kernel, key in _read(Path(path)):
            kernels.append(kernel)
            entry = source.get(key) if key is not None else None
            # The manifest must agree with the name: a key alone proves nothing about the kernel.
            if entry is not None and entry.facts.get("slug") == kernel.slug:
                results[kernel] = entry
        return cls(tuple(kernels), results)


def build(
    kernels: Kernels,
    arch: str | Sequence[str] | None = None,
    jobs: int | None = None,
    *,
    retry: bool = False,
    trace: Path | str | None = None,
) -> Registry:
    """Build kernels, spaces, sets or configs for one or several GPUs, from the store where it knows them.

    The registry that comes back has every kernel; `failures` has those that did not compile.
    """
    return Registry.of(kernels, arch).build(jobs, retry=retry, trace=trace)


def _matches(kernel: Kernel, name: str, value: Any) -> bool:
    if name in ("op", "arch"):
        return bool(getattr(kernel, name) == value)
    known = op_named(kernel.op).field_names
    choose(f"field of {kernel.op}", name, ("op", "arch", *known))
    return bool(getattr(kernel.config, name) == value)


def _read(path: Path) -> Iterator[tuple[Kernel, str | None]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema is {document['schema']!r}, known is {SCHEMA}")
        for entry in document["kernels"]:
            key = entry["key"]
            yield parse_kernel(str(entry["slug"])), None if key is None else str(key)
    except (ValueError, KeyError, TypeError, AttributeError, TilewrightError) as error:
        raise FileFormatError(path, [FileProblem("", f"is not a saved registry: {error}")]) from error
