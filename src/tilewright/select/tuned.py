"""Tuned tables: the fastest measured kernel of each problem."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tilewright.base.atomic_write import write_text
from tilewright.base.document_models import validate_document
from tilewright.base.documents import FileProblems, read_json
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_values import list_all_fields, load_problem

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class TunedEntry:
    """The fastest kernel of a problem, and its time."""

    kernel: Kernel
    problem: Any
    us: float


class TunedTable:
    """The fastest measured kernel by GPU and problem; problems must be equal in every field."""

    def __init__(self, entries: Iterable[TunedEntry], source: str = "") -> None:
        self.source = source
        self._found: dict[tuple[str, Any], TunedEntry] = {}
        for entry in entries:
            key = (entry.kernel.arch, entry.problem)
            known = self._found.get(key)
            # Of several measurements of one problem the fastest is kept, whatever their order.
            if known is None or (entry.us, entry.kernel.slug) < (known.us, known.kernel.slug):
                self._found[key] = entry

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Any:
        return iter(self._found.values())

    def find_entry(self, arch: str, problem: Any) -> TunedEntry | None:
        """The entry of a problem on a GPU; None if there is none."""
        return self._found.get((arch, problem))


class _EntryModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kernel: Annotated[str, Field(min_length=1)]
    problem: dict[str, Any]
    us: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _TableModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    tuned: list[_EntryModel]


def read_tuned(path: Path) -> TunedTable:
    """Read a table. All problems of the file are reported at once."""
    file = validate_document(path, _TableModel, read_json(path), strict=True)
    faults = FileProblems()
    tried = [faults.try_call(f"tuned.{number}", _parse_entry, entry) for number, entry in enumerate(file.tuned)]
    faults.raise_any(path)
    return TunedTable((entry for entry in tried if entry is not None), path.name)


def write_tuned(table: TunedTable, path: Path) -> None:
    """Write a table; the same entries give the same bytes."""
    rows = sorted(
        ({"kernel": e.kernel.slug, "problem": list_all_fields(e.problem), "us": e.us} for e in table),
        key=lambda row: (row["kernel"], json.dumps(row["problem"], sort_keys=True)),
    )
    lines = ",\n".join(f"    {json.dumps(row, sort_keys=True)}" for row in rows)
    write_text(path, f'{{\n  "schema": {SCHEMA},\n  "tuned": [\n{lines}\n  ]\n}}\n')


def _parse_entry(entry: _EntryModel) -> TunedEntry:
    kernel = parse_kernel(entry.kernel)
    return TunedEntry(kernel, load_problem(find_op(kernel.op).problem_type, entry.problem), entry.us)
