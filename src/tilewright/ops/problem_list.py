"""Lists of problems in files, for any op: CSV and JSON, read and written, and formats of other tools, read.

The columns of a CSV file and the keys of a JSON object are what the op's `Problem` is made of, shorthands such as
`dtype` included. An empty cell, a missing key and a null stand for the default.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, UnknownValueError, choose
from tilewright.ops.op import Op
from tilewright.ops.problem_text import problem_fields
from tilewright.ops.problem_values import read_value, value_text

SUFFIXES = {".csv": "csv", ".json": "json"}
KEYS = ("op", "problems")  # of a JSON file that is an object


def read_problems(op: Op | str, path: Path | str, format: str | None = None) -> list[Any]:
    """The problems that a file lists, in its order. Raises `FileFormatError` with every bad line.

    The format is csv, json or a name from the op's `problem_readers`; without one the file's suffix tells.
    """
    if isinstance(op, str):
        from tilewright.ops import op_named  # noqa: PLC0415  (the ops there may import this module)

        op = op_named(op)
    path = Path(path)
    problems = _reader(op, path, format)(path)
    if not problems:
        raise FileFormatError(path, [FileProblem("", f"holds no {op.name} problem")])
    return problems


def formats(op: Op) -> tuple[str, ...]:
    """The formats in which problems of an op can be read."""
    return (*SUFFIXES.values(), *op.problem_readers)


def _reader(op: Op, path: Path, format: str | None) -> Callable[[Path], list[Any]]:
    own: dict[str, Callable[[Path], list[Any]]] = {
        "csv": lambda file: _read_csv(op, file),
        "json": lambda file: _read_json(op, file),
    }
    if format is None:
        format = SUFFIXES.get(path.suffix.lower())
        if format is None:
            endings = " or ".join(SUFFIXES)
            raise InvalidValueError(
                f"{path} does not end in {endings}, so its format must be said. Known: {', '.join(formats(op))}."
            )
    known = {**op.problem_readers, **own}
    return known[choose(f"format of a list of {op.name} problems", format, formats(op))]


def needed_fields(problem: Any) -> dict[str, Any]:
    """The fields from which a problem can be made again: those that are not their defaults."""
    return problem_fields(problem, None)


def read_text(path: Path) -> str:
    """The text of a list. Spreadsheets begin theirs with a byte-order mark, which is left out."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FileFormatError(path, [FileProblem("", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(path, [FileProblem("", f"is not UTF-8: {error}")]) from error


def read_each(path: Path, entries: Iterable[tuple[str, Any]], read: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """The problems that entries stand for, each given with its place; an error that names all bad ones."""
    found: list[Any] = []
    faults: list[FileProblem] = []
    for where, entry in entries:
        try:
            found += read(entry)
        except ValueError as error:  # ours are among these, and Python's for overlong numbers
            faults.append(FileProblem(where, str(error)))
    if faults:
        raise FileFormatError(path, faults)
    return found


def parameters_of(op: Op) -> Mapping[str, inspect.Parameter]:
    """What a problem is made of: its fields, and words that stand for several of them."""
    return inspect.signature(op.problem_type).parameters


def _problem(op: Op, values: Mapping[str, Any]) -> Any:
    missing = missing_fields(op, values)
    if missing:
        raise InvalidValueError(f"does not say {', '.join(missing)}")
    return op.problem_type(**values)


def missing_fields(op: Op, given: Container[str]) -> list[str]:
    """What a problem cannot be made without and is not given."""
    return [name for name, p in parameters_of(op).items() if p.default is p.empty and name not in given]


# CSV


def _read_csv(op: Op, path: Path) -> list[Any]:
    rows = _rows(path)
    if not rows:
        columns = ", ".join(parameters_of(op))
        raise FileFormatError(path, [FileProblem("", f"is empty: its first line names columns. Known: {columns}.")])
    (where, header), *lines = rows
    _check_header(op, path, where, header)
    return read_each(path, lines, lambda cells: [_of_cells(op, header, cells)])


def _rows(path: Path) -> list[tuple[str, list[str]]]:
    """The lines that are not blank, as cells without the blanks around them."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                rows.append((f"line {reader.line_num}", cells))
    except csv.Error as error:
        raise FileFormatError(path, [FileProblem(f"line {reader.line_num}", f"is not CSV: {error}")]) from error
    return rows


def _check_header(op: Op, path: Path, where: str, header: Sequence[str]) -> None:
    """Bad columns are told once, not again for each line below them."""
    faults = []
    for name in dict.fromkeys(header):
        if header.count(name) > 1:
            faults.append(f"has the column {name!r} {header.count(name)} times")
        if name not in parameters_of(op):
            faults.append(str(UnknownValueError(f"field of a {op.name} problem", name, parameters_of(op))))
    missing = missing_fields(op, header)
    if missing:
        faults.append(f"has no column for {', '.join(missing)}")
    if faults:
        raise FileFormatError(path, [FileProblem(where, fault) for fault in faults])


def _of_cells(op: Op, header: Sequence[str], cells: Sequence[str]) -> Any:
    if len(cells) != len(header):
        raise InvalidValueError(f"has {len(cells)} cells, the header has {len(header)}")
    return _problem(op, {name: read_value(cell) for name, cell in zip(header, cells, strict=True) if cell})


def to_csv(op: Op, problems: Sequence[Any]) -> str:
    """A list as CSV: the columns that some problem needs, a cell empty where its value is the default."""
    needed = [needed_fields(problem) for problem in problems]
    used = {name for fields in needed for name in fields}
    columns = [name for name, p in parameters_of(op).items() if name in used or (not needed and p.default is p.empty)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([value_text(fields.get(name, "")) for name in columns] for fields in needed)
    return text.getvalue()


# JSON


def _read_json(op: Op, path: Path) -> list[Any]:
    try:
        document = json.loads(read_text(path), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, [FileProblem("", f"is not JSON: {error}")]) from error
    try:
        entries = _entries(op, document)
    except InvalidValueError as error:
        raise FileFormatError(path, [FileProblem("", str(error))]) from error
    places = ((f"entry {number}", entry) for number, entry in enumerate(entries, 1))
    return read_each(path, places, lambda entry: [_of_object(op, entry)])


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: Python would keep the last of equal ones without a word."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidValueError(f"an object has the key {next(n for n in names if names.count(n) > 1)!r} twice")
    return made


def _entries(op: Op, document: Any) -> list[Any]:
    entries = document
    if isinstance(document, dict):
        for key in document:
            choose("key", key, KEYS)
        if document.get("op", op.name) != op.name:
            raise InvalidValueError(f"is a list of {document['op']!r} problems, not of {op.name}")
        entries = document.get("problems")
    if not isinstance(entries, list):
        raise InvalidValueError('must be a list of objects, or {"problems": [objects]}')
    return entries


def _of_object(op: Op, entry: Any) -> Any:
    if not isinstance(entry, dict):
        raise InvalidValueError(f"must be an object, got {entry!r}")
    for name in entry:
        choose(f"field of a {op.name} problem", name, parameters_of(op))
    return _problem(op, {name: _of_json(name, value) for name, value in entry.items() if value is not None})


def _of_json(name: str, value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value)):
        raise InvalidValueError(f"{name} must be a value or a list of numbers, got {value!r}")
    return tuple(value) if isinstance(value, list) else value


def to_json(op: Op, problems: Sequence[Any]) -> str:
    """A list as JSON, one problem on each line, without the fields that have their defaults."""
    lines = ",\n".join(f"    {json.dumps(needed_fields(problem))}" for problem in problems)
    listed = f"[\n{lines}\n  ]" if problems else "[]"
    return f'{{\n  "op": {json.dumps(op.name)},\n  "problems": {listed}\n}}\n'


WRITERS: Mapping[str, Callable[[Op, Sequence[Any]], str]] = {"csv": to_csv, "json": to_json}
