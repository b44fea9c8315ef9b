"""Tables of aiter, AMD's operators for serving models: CSV files that name a kernel for each problem, or only problems.

A tuned table has the GPU (`gfx`, `cu_num`), the columns of the problem, and those of the fastest kernel. An untuned one
has the columns of the problem. An op declares the families of tables that list its problems: `TableFamily`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.documents import parse_csv, read_text
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_list import read_each

GPU_COLUMNS = ("gfx", "cu_num")
LIBRARY = "cktile"  # aiter's name for kernels on CK Tile, in the column `libtype`
# The cells of a problem, in the order of a family's columns.
Key = tuple[str, ...]


@dataclass(frozen=True)
class AiterTable:
    """A table as it is in its file. `ended` tells whether its last line ends with a line feed."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ended: bool = True

    @property
    def cells(self) -> list[tuple[str, dict[str, str]]]:
        """The cells of each line by column, with the line. Blank lines are left out, and missing cells are empty."""
        empty = dict.fromkeys(self.header, "")
        lines = enumerate(self.rows, 2)
        return [(f"line {n}", {**empty, **dict(zip(self.header, row, strict=False))}) for n, row in lines if row]

    def to_text(self) -> str:
        """The text of the file, the same as was read."""
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows((self.header, *self.rows))
        return text.getvalue() if self.ended else text.getvalue().removesuffix("\n")


def read_aiter_table(path: Path | str) -> AiterTable:
    """Read a table. No column may be named twice, and no line may have more cells than there are columns.

    Blank lines have no cells. Cells at the end of a line may be missing, as for pandas, with which aiter reads them.
    """
    text = read_text(path)
    lines = [tuple(cells) for _, cells in parse_csv(path, text)]
    if not lines:
        raise FileFormatError(path, [FileProblem("", "is empty: its first line must name the columns")])
    header, *rows = lines
    faults = [
        FileProblem(f"line {number}", f"has {len(cells)} cells, the header has {len(header)}")
        for number, cells in enumerate(rows, 2)
        if len(cells) > len(header)
    ]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        faults.insert(0, FileProblem("line 1", f"names columns twice: {', '.join(twice)}"))
    if faults:
        raise FileFormatError(path, faults)
    return AiterTable(header, tuple(rows), text.endswith("\n"))


@dataclass(frozen=True, kw_only=True)
class TableFamily:
    """The tables of one family of an op's problems.

    `columns` are those of a problem, and `defaults` the cells of columns that some files do not have. `file_words` are
    the words by which names of its files differ from those of other families. `read` returns the problem of a row's
    cells, and raises `InvalidValueError` if the op has none. `write` returns the cells of a problem, and `describe` the
    cells of its fastest kernel, which are in the columns `results`. `list_look_ups` returns the keys that aiter looks
    up for a key, one after the other: the key itself, and those of other sizes.
    """

    columns: tuple[str, ...]
    results: tuple[str, ...]
    file_words: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Any]
    write: Callable[[Any], Mapping[str, str]]
    describe: Callable[[Kernel, Any], Mapping[str, str]]
    list_look_ups: Callable[[Key], Sequence[Key]]
    defaults: Mapping[str, str] = field(default_factory=dict)

    def get_key(self, cells: Mapping[str, str]) -> Key:
        return tuple(cells.get(name, self.defaults.get(name, "")) for name in self.columns)

    def read_key(self, key: Key) -> Any:
        """The problem of a key."""
        return self.read(dict(zip(self.columns, key, strict=True)))

    def names_file(self, name: str) -> bool:
        """Whether a file of this name is one of the family's tables."""
        return all(word in Path(name).name for word in self.file_words)


def list_keys(family: TableFamily, path: Path) -> list[tuple[str, Key]]:
    """The keys of a table's problems, each with its line."""
    table = read_aiter_table(path)
    missing = [name for name in family.columns if name not in (*table.header, *family.defaults)]
    if missing:
        raise FileFormatError(path, [FileProblem("line 1", f"has no columns {', '.join(missing)}")])
    return [(where, family.get_key(cells)) for where, cells in table.cells]


def read_tuned_times(family: TableFamily, path: Path, arch: Arch) -> dict[Key, float]:
    """The times in µs of the rows for a GPU and the number of its units, by key."""
    table = read_aiter_table(path)
    missing = [name for name in (*GPU_COLUMNS, "us") if name not in table.header]
    if missing:
        advice = "it is not a tuned table but a list of problems"
        raise FileFormatError(path, [FileProblem("line 1", f"has no columns {', '.join(missing)}: {advice}")])
    gpu = (arch.name, str(arch.compute.units))
    keys = list_keys(family, path)
    found: dict[Key, float] = {}
    for (where, key), (_, cells) in zip(keys, table.cells, strict=True):
        if tuple(cells[name] for name in GPU_COLUMNS) == gpu:
            try:
                found[key] = float(cells["us"])
            except ValueError:
                raise FileFormatError(path, [FileProblem(where, f"us is {cells['us']!r}, not a number")]) from None
    return found


def make_table_reader(family: TableFamily) -> Callable[[Path], list[Any]]:
    """The reader of a family's tables, tuned or not, as lists of problems. A problem is listed once."""

    def read(path: Path) -> list[Any]:
        found = read_each(path, list_keys(family, path), lambda key: [family.read_key(key)])
        return list(dict.fromkeys(found))

    return read


# aiter logs a problem without a row with its sizes, some options as `name=value` or `name:value`, and the table.
_MISS = re.compile(r"shape is (?P<sizes>.*?),? ?not found tuned config in (?P<table>\S+?),?(?:\s|$)")
_VALUE = re.compile(r"(\w+)[:=]\s*'?([\w.]+)'?")
# Names in log lines that differ from those of columns.
_LOG_NAMES = {"otype": "outdtype"}


def list_logged_keys(family: TableFamily, text: str) -> Iterator[tuple[str, Key]]:
    """The keys of problems that a log reports as missing in the family's tables, each with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        miss = _MISS.search(line)
        if miss is not None and family.names_file(miss["table"]):
            cells = {_LOG_NAMES.get(name, name): value for name, value in _VALUE.findall(miss["sizes"])}
            yield f"line {number}", family.get_key(cells)


def make_log_reader(family: TableFamily) -> Callable[[Path], list[Any]]:
    """The reader of logs: the problems that aiter did not find in the family's tables. Other lines are skipped."""

    def read(path: Path) -> list[Any]:
        entries = list_logged_keys(family, read_text(path))
        return list(dict.fromkeys(read_each(path, entries, lambda key: [family.read_key(key)])))

    return read


def make_tuned_table(family: TableFamily, winners: Sequence[tuple[Arch, Kernel, Any, float]]) -> AiterTable:
    """A tuned table with the fastest kernel of each GPU and problem, and its time in µs."""
    header = (*GPU_COLUMNS, *family.columns, *family.results)
    rows = []
    for arch, kernel, problem, us in winners:
        seconds = us * 1e-6
        cells = {
            **{"gfx": arch.name, "cu_num": str(arch.compute.units)},
            **family.write(problem),
            **{"libtype": LIBRARY, "us": f"{us:.4f}", "kernelName": kernel.slug},
            "tflops": f"{problem.flops / seconds / 1e12:.2f}",
            "bw": f"{problem.bytes_moved / seconds / 1e9:.2f}",
            **family.describe(kernel, problem),
        }
        unknown = [name for name in header if name not in cells]
        if unknown:
            raise InvalidValueError(f"a row has no {', '.join(unknown)}")
        rows.append(tuple(cells[name] for name in header))
    return AiterTable(header, tuple(rows))
