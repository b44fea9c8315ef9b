"""Tables of aiter, AMD's operators for serving models: CSV files that name a kernel for each problem, or only problems.

A tuned table has the GPU (`gfx`, `cu_num`), the columns of the problem, and those of the fastest kernel. An untuned one
has the columns of the problem. An op declares the families of tables that list its problems: `TableFamily`.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

    `columns` are those of a problem, and `defaults` the cells of columns that some files do not have. The names of its
    files contain all of `file_words` and none of `other_words`. `read` returns the problem of a row's cells, and raises
    `InvalidValueError` if the op has none. `write` returns the cells of a problem, and raises `InvalidValueError` if a
    row cannot describe it. `describe` returns the cells of its fastest kernel, which are in the columns `results`.
    """

    columns: tuple[str, ...]
    results: tuple[str, ...]
    file_words: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Any]
    write: Callable[[Any], Mapping[str, str]]
    describe: Callable[[Kernel, Any], Mapping[str, str]]
    other_words: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)

    def get_key(self, cells: Mapping[str, str]) -> Key:
        return tuple(cells.get(name, self.defaults.get(name, "")).strip() for name in self.columns)

    def read_key(self, key: Key) -> Any:
        """The problem of a key."""
        return self.read(dict(zip(self.columns, key, strict=True)))

    def list_look_ups(self, key: Key) -> list[Key]:
        """The keys that aiter looks up for a key, one after the other: the key itself, then those of two larger M.

        The sizes are those of getPaddedM in aiter's csrc/py_itfs_cu/gemm_common.cu.
        """
        place = self.columns.index("M")
        m, n = int(key[place]), int(key[self.columns.index("N")])
        step = 16 if m <= 256 else 32 if m <= 1024 else 64 if m <= 4096 else 128
        power = 8192 if m > 8192 and n > 4096 else 1 << (m - 1).bit_length()
        sizes = (m, -(-m // step) * step, power)
        return list(dict.fromkeys((*key[:place], str(size), *key[place + 1 :]) for size in sizes))

    def names_file(self, name: str) -> bool:
        """Whether a file of this name is one of the family's tables."""
        name = Path(name).name
        return all(word in name for word in self.file_words) and not any(word in name for word in self.other_words)

    def describe_names(self) -> str:
        """The words that names of its files have, for messages."""
        words = " and ".join(self.file_words)
        return f"{words}, without {' and '.join(self.other_words)}" if self.other_words else words


def choose_family(families: Sequence[TableFamily], problems: Sequence[Any]) -> TableFamily:
    """The first family whose rows describe all problems. Raises `InvalidValueError` if there is none."""
    reasons = []
    for family in families:
        try:
            for problem in problems:
                family.write(problem)
        except InvalidValueError as error:
            reasons.append(str(error))
        else:
            return family
    raise InvalidValueError("\n".join(dict.fromkeys(reasons)))


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


def make_table_reader(*families: TableFamily) -> Callable[[Path], list[Any]]:
    """The reader of tables, tuned or not, as lists of problems. A problem is listed once.

    With several families, the name of a file decides.
    """

    def read(path: Path) -> list[Any]:
        family = families[0] if len(families) == 1 else _find_family(families, path)
        return _read_listed(family, path, list_keys(family, path))

    return read


def _read_listed(family: TableFamily, path: Path, keys: Iterable[tuple[str, Key]]) -> list[Any]:
    """The problems of keys with their lines, each once."""
    return list(dict.fromkeys(read_each(path, keys, lambda key: [family.read_key(key)])))


def _find_family(families: Sequence[TableFamily], path: Path) -> TableFamily:
    for family in families:
        if family.names_file(path.name):
            return family
    known = "; ".join(family.describe_names() for family in families)
    raise FileFormatError(path, [FileProblem("", f"has no name of a known table. Words in their names: {known}.")])


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


def make_log_reader(*families: TableFamily) -> Callable[[Path], list[Any]]:
    """The reader of logs: the problems that aiter did not find in the families' tables. Other lines are skipped."""

    def read(path: Path) -> list[Any]:
        text = read_text(path)
        found = (_read_listed(family, path, list_logged_keys(family, text)) for family in families)
        return list(dict.fromkeys(itertools.chain.from_iterable(found)))  # families may share problems

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
