"""What kernels cost to compile: recorded as they are built, used to begin the longest first and to tell when it ends.

A line of JSON per compile, appended, so that any number of processes may write. Only guesses are made of it; a file
that is lost or partly written costs a worse guess.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from tilewright.base.digest import canonical_json
from tilewright.base.document_values import check_keys, expect_number, expect_table, expect_text
from tilewright.base.documents import parse_json
from tilewright.base.errors import InvalidValueError
from tilewright.building.store.local import Store
from tilewright.building.store.regular import read_regular
from tilewright.ops import op_named
from tilewright.ops.kernel import Kernel

# About 20,000 compiles. A longer file is begun anew from its younger half.
_MOST_BYTES = 4 * 2**20
# A week. A compile is given up after half an hour; what is longer, or no number at all, is no cost.
_MOST_CPU_S = 7 * 86400.0


def costs_file(store: Store) -> Path:
    return store.root / "costs.jsonl"


@dataclass(frozen=True)
class Costs:
    """CPU seconds by kernel, and on average by kind of kernel and over all."""

    by_slug: Mapping[str, float] = field(default_factory=dict)
    by_kind: Mapping[str, float] = field(default_factory=dict)
    mean: float | None = None

    def guess(self, kernel: Kernel) -> float | None:
        """CPU seconds that the kernel is likely to take; None when nothing was ever recorded."""
        own = self.by_slug.get(kernel.slug)
        return own if own is not None else self.by_kind.get(kind_of(kernel), self.mean)


def kind_of(kernel: Kernel) -> str:
    """Kernels that cost about the same: of one op and GPU, with the same fields that change their structure."""
    fields = op_named(kernel.op).kinds
    return " ".join([kernel.op, kernel.arch, *(str(getattr(kernel.config, name)) for name in fields)])


def read_costs(store: Store) -> Costs:
    """Everything recorded. Lines that are not whole are passed over."""
    try:
        raw = read_regular(costs_file(store), 2 * _MOST_BYTES)
    except OSError:
        return Costs()
    lines = raw.decode("utf-8", "replace").splitlines()
    slugs: dict[str, float] = {}
    kinds: defaultdict[str, list[float]] = defaultdict(list)
    for line in lines:
        record = _record(line)
        if record is not None:
            slugs[record[0]] = record[2]
            kinds[record[1]].append(record[2])
    everything = [cost for costs in kinds.values() for cost in costs]
    return Costs(slugs, {k: fmean(v) for k, v in kinds.items()}, fmean(everything) if everything else None)


def record_cost(store: Store, kernel: Kernel, cpu_s: float) -> None:
    """Append what a kernel cost. Raises OSError where the store cannot be written."""
    path = costs_file(store)
    line = canonical_json({"slug": kernel.slug, "kind": kind_of(kernel), "cpu_s": round(cpu_s, 2)})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
        long = os.fstat(descriptor).st_size > _MOST_BYTES
    finally:
        os.close(descriptor)
    if long:
        _halve(path)


def _halve(path: Path) -> None:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    private = path.with_name(f".{path.name}.{os.getpid()}")
    private.write_text("".join(lines[len(lines) // 2 :]), encoding="utf-8")
    private.replace(path)


def _record(line: str) -> tuple[str, str, float] | None:
    """What a line says; None when a crash, or somebody else, made something else of it."""
    try:
        found = expect_table("a cost", parse_json(line))
        check_keys("a cost", found, ("slug", "kind", "cpu_s"))
        cpu_s = expect_number("cpu_s", found["cpu_s"], least=0, most=_MOST_CPU_S)
        return expect_text("slug", found["slug"]), expect_text("kind", found["kind"]), cpu_s
    except InvalidValueError:
        return None
