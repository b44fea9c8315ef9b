"""Compile costs of kernels: recorded by builds, used to start the longest first and to estimate the remaining time.

Each compile appends one line of JSON, so that any number of processes may write. The costs are only used for
estimates; a lost or damaged file only makes these worse.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from tilewright.base.digest import to_canonical_json
from tilewright.base.document_values import check_keys, expect_number, expect_table, expect_text
from tilewright.base.documents import parse_json
from tilewright.base.errors import InvalidValueError
from tilewright.building.store.files import read_regular
from tilewright.building.store.local import Store
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

# A kernel of which no similar one was built here yet: the mean of the kernels of CI (tests/ci_kernels.txt).
USUAL_CPU_S = 14.0
# About 20,000 compiles. A longer file is cut to its newer half.
_MOST_BYTES = 4 * 2**20
# A week. A compile is stopped after half an hour, so larger values are invalid.
_MOST_CPU_S = 7 * 86400.0


def estimate_cpu_s(kernels: Iterable[Kernel], store: Store | None = None) -> float:
    """Estimate the CPU seconds to compile kernels, from the recorded costs of similar ones."""
    costs = read_costs(store or Store())
    return sum(_first_known(costs.estimate_cpu_s(kernel), USUAL_CPU_S) for kernel in kernels)


def _first_known(found: float | None, usual: float) -> float:
    return usual if found is None else found


def costs_file(store: Store) -> Path:
    return store.root / "costs.jsonl"


@dataclass(frozen=True)
class CompileCosts:
    """CPU seconds by kernel, and averages by group of similar kernels and over all kernels."""

    by_slug: Mapping[str, float] = field(default_factory=dict)
    by_kind: Mapping[str, float] = field(default_factory=dict)
    mean: float | None = None

    def estimate_cpu_s(self, kernel: Kernel) -> float | None:
        """Estimate the CPU seconds to compile a kernel; None if nothing was recorded yet."""
        own = self.by_slug.get(kernel.slug)
        return own if own is not None else self.by_kind.get(cost_group(kernel), self.mean)


def cost_group(kernel: Kernel) -> str:
    """Kernels of one group cost about the same: they have the same op, GPU and structural fields."""
    fields = find_op(kernel.op).structure_fields
    return " ".join([kernel.op, kernel.arch, *(str(getattr(kernel.config, name)) for name in fields)])


def read_costs(store: Store) -> CompileCosts:
    """Read all recorded costs. Invalid lines are skipped."""
    try:
        raw = read_regular(costs_file(store), 2 * _MOST_BYTES)
    except OSError:
        return CompileCosts()
    lines = raw.decode("utf-8", "replace").splitlines()
    slugs: dict[str, float] = {}
    kinds: defaultdict[str, list[float]] = defaultdict(list)
    for line in lines:
        record = _parse_record(line)
        if record is not None:
            slugs[record[0]] = record[2]
            kinds[record[1]].append(record[2])
    everything = [cost for costs in kinds.values() for cost in costs]
    return CompileCosts(slugs, {k: fmean(v) for k, v in kinds.items()}, fmean(everything) if everything else None)


def record_cost(store: Store, kernel: Kernel, cpu_s: float) -> None:
    """Append the cost of a kernel. Raises `OSError` if the store cannot be written."""
    path = costs_file(store)
    line = to_canonical_json({"slug": kernel.slug, "kind": cost_group(kernel), "cpu_s": round(cpu_s, 2)})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
        long = os.fstat(descriptor).st_size > _MOST_BYTES
    finally:
        os.close(descriptor)
    if long:
        _drop_older_half(path)


def _drop_older_half(path: Path) -> None:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    private = path.with_name(f".{path.name}.{os.getpid()}")
    private.write_text("".join(lines[len(lines) // 2 :]), encoding="utf-8")
    private.replace(path)


def _parse_record(line: str) -> tuple[str, str, float] | None:
    """Parse a line: slug, group and CPU seconds; None if it is invalid, for example after a crash."""
    try:
        found = expect_table("a cost", parse_json(line))
        check_keys("a cost", found, ("slug", "kind", "cpu_s"))
        cpu_s = expect_number("cpu_s", found["cpu_s"], least=0, most=_MOST_CPU_S)
        return expect_text("slug", found["slug"]), expect_text("kind", found["kind"]), cpu_s
    except InvalidValueError:
        return None
