"""Files with lists of problems, for any op: reads and writes CSV and JSON, and reads formats of other tools.

The columns of a CSV file and the keys of a JSON object are the parameters of the op's `Problem`, including
shorthands such as `dtype`. An empty cell, a missing key and null stand for the default.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.document_values import format_value
from tilewright.base.documents import FileProblems, convert_read_errors, read_csv, read_json
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, UnknownValueError, choose, require
from tilewright.ops.fields import ConfigBase, dump_identity, list_fields
from tilewright.ops.op import Op
from tilewright.ops.problem_text import list_problem_fields
from tilewright.ops.problem_values import format_problem_value, read_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SUFFIXES = {".csv": "csv", ".json": "json"}
KEYS = ("op", "problems")  # of a JSON file that is an object


def read_problems(
    op: Op | str, path: Path | str, format: str | None = None, fixed: Sequence[Mapping[str, Any]] = ()
) -> list[Any]:
    """Read the problems of a file, in its order. Raises `FileFormatError`, which lists all bad lines.

    The format is csv, json or a name from the op's `problem_readers`. By default it follows from the file's suffix.
    `fixed` has values for fields that a CSV or JSON file may omit, such as those that kernels fix. An incomplete line
    is a problem for each of them that agrees with it.
    """
    if isinstance(op, str):
        from tilewright.ops import find_op  # noqa: PLC0415  (the ops there may import this module)

        op = find_op(op)
    require("op", op, Op)
    require("path", path, str, PathLike)
    path = Path(path)
    read = _choose_reader(op, path, format, fixed)
    with convert_read_errors(path):
        problems = read(path)
    if not problems:
        raise FileFormatError(path, [FileProblem("", f"contains no {op.name} problem")])
    return problems


def list_formats(op: Op) -> tuple[str, ...]:
    """The formats in which problems of an op can be read."""
    return (*SUFFIXES.values(), *op.problem_readers)


def _choose_reader(
    op: Op, path: Path, format: str | None, fixed: Sequence[Mapping[str, Any]]
) -> Callable[[Path], list[Any]]:
    own: dict[str, Callable[[Path], list[Any]]] = {
        "csv": lambda file: _read_csv(op, file, fixed),
        "json": lambda file: _read_json(op, file, fixed),
    }
    if format is None:
        format = SUFFIXES.get(path.suffix.lower())
        if format is None:
            endings = " or ".join(SUFFIXES)
            raise InvalidValueError(
                f"{path} does not end in {endings}, so its format must be given. Known: {', '.join(list_formats(op))}."
            )
    known = {**op.problem_readers, **own}
    return known[choose(f"format of a list of {op.name} problems", format, list_formats(op))]


def list_needed_fields(problem: DataclassInstance) -> dict[str, Any]:
    """The fields that are needed to create an equal problem: those that differ from their defaults."""
    return list_problem_fields(problem, None)


def read_each(path: Path, entries: Iterable[tuple[str, Any]], read: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """Read the problems of all entries, given with their locations. The error lists all bad entries."""
    faults = FileProblems()
    found = [problem for where, entry in entries for problem in faults.try_call(where, read, entry) or ()]
    faults.raise_any(path)
    return found


def list_parameters(op: Op) -> Mapping[str, inspect.Parameter]:
    """The parameters of a problem: its fields, and shorthands for several of them."""
    return inspect.signature(op.problem_type).parameters


def list_fixed_values(op: Op, config: ConfigBase) -> dict[str, Any]:
    """The parameters of a problem that a kernel's config fixes, with their values.

    A newer field with its default fixes nothing: kernels that do not use it have that value, too.
    """
    own = dump_identity(config)
    return {name: getattr(config, name) for name in list_parameters(op) if name in own}


def find_conflict(op: Op, fixed: Mapping[str, Any], name: str, value: Any) -> str | None:
    """The field in `fixed` that differs from a value of a field or shorthand; None if all of them agree."""
    if name in op.shorthands:
        values = op.shorthands[name].expand_value(str(value))
    elif name in fixed:
        values = {name: list_fields(op.config_type)[name].kind.read(name, value)}
    else:
        return None
    return next((field for field, each in values.items() if field in fixed and fixed[field] != each), None)


def complete_problem(op: Op, values: Mapping[str, Any], fixed: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The problem with these values. If they are incomplete, one for each of the `fixed` values that agrees with them.

    Fields with a default keep it where that is among the fixed values: it is the plain problem.
    """
    try:
        return [_make_problem(op, values)]
    except InvalidValueError:
        agreeing = [each for each in fixed if not any(find_conflict(op, each, *item) for item in values.items())]
        if not agreeing:
            raise
    short = {field for name in values if name in op.shorthands for field in op.shorthands[name].fields}
    open_ = [{n: v for n, v in each.items() if n not in values and n not in short} for each in agreeing]
    parameters = list_parameters(op)
    plain = [
        each
        for each in open_
        if all(parameters[name].default in (inspect.Parameter.empty, None, "", value) for name, value in each.items())
    ]
    return list(dict.fromkeys(_make_problem(op, {**values, **each}) for each in plain or open_))


def _make_problem(op: Op, values: Mapping[str, Any]) -> Any:
    missing = find_missing_fields(op, values)
    if missing:
        raise InvalidValueError(f"has no {', '.join(missing)}")
    return op.problem_type(**values)


def find_missing_fields(op: Op, given: Container[str]) -> list[str]:
    """The required parameters of a problem that are not given."""
    return [name for name, p in list_parameters(op).items() if p.default is p.empty and name not in given]


# CSV


def _read_csv(op: Op, path: Path, fixed: Sequence[Mapping[str, Any]]) -> list[Any]:
    sheet = read_csv(path)
    if sheet is None:
        columns = ", ".join(list_parameters(op))
        raise FileFormatError(path, [FileProblem("", f"is empty: its first line must name columns. Known: {columns}.")])
    # Bad columns are reported once, not again for each line.
    faults = sheet.check_header(find_missing_fields(op, {name for each in fixed for name in each}))
    unknown = [name for name in dict.fromkeys(sheet.header) if name not in list_parameters(op)]
    for name in unknown:
        what = str(UnknownValueError(f"field of a {op.name} problem", name, list_parameters(op)))
        faults.append(FileProblem(sheet.place, what))
    if faults:
        raise FileFormatError(path, faults)
    return read_each(path, sheet.lines, lambda cells: _read_row(op, sheet.get_row(cells), fixed))


def _read_row(op: Op, row: Mapping[str, str], fixed: Sequence[Mapping[str, Any]]) -> list[Any]:
    return complete_problem(op, {name: read_value(cell) for name, cell in row.items() if cell}, fixed)


def to_csv(op: Op, problems: Sequence[Any]) -> str:
    """A list as CSV, with the columns that at least one problem needs. Cells with the default value are empty."""
    needed = [list_needed_fields(problem) for problem in problems]
    used = {name for fields in needed for name in fields}
    columns = [name for name, p in list_parameters(op).items() if name in used or (not needed and p.default is p.empty)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([format_problem_value(fields.get(name, "")) for name in columns] for fields in needed)
    return text.getvalue()


# JSON


def _read_json(op: Op, path: Path, fixed: Sequence[Mapping[str, Any]]) -> list[Any]:
    with convert_read_errors(path):
        entries = _read_entries(op, read_json(path))
    places = ((f"entry {number}", entry) for number, entry in enumerate(entries, 1))
    return read_each(path, places, lambda entry: _read_object(op, entry, fixed))


def _read_entries(op: Op, document: object) -> list[Any]:
    entries = document
    if isinstance(document, dict):
        for key in document:
            choose("key", key, KEYS)
        if document.get("op", op.name) != op.name:
            raise InvalidValueError(f"is a list of {format_value(document['op'])} problems, not of {op.name}")
        entries = document.get("problems")
    if not isinstance(entries, list):
        raise InvalidValueError('must be a list of objects, or {"problems": [objects]}')
    return entries


def _read_object(op: Op, entry: object, fixed: Sequence[Mapping[str, Any]]) -> list[Any]:
    if not isinstance(entry, dict):
        raise InvalidValueError(f"must be an object, got {format_value(entry)}")
    for name in entry:
        choose(f"field of a {op.name} problem", name, list_parameters(op))
    values = {name: _read_json_value(name, value) for name, value in entry.items() if value is not None}
    return complete_problem(op, values, fixed)


def _read_json_value(name: str, value: object) -> object:
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value)):
        raise InvalidValueError(f"{name} must be a value or a list of numbers, got {format_value(value)}")
    return tuple(value) if isinstance(value, list) else value


def to_json(op: Op, problems: Sequence[Any]) -> str:
    """A list as JSON, one problem per line, without fields that have their defaults."""
    lines = ",\n".join(f"    {json.dumps(list_needed_fields(problem))}" for problem in problems)
    listed = f"[\n{lines}\n  ]" if problems else "[]"
    return f'{{\n  "op": {json.dumps(op.name)},\n  "problems": {listed}\n}}\n'


WRITERS: Mapping[str, Callable[[Op, Sequence[Any]], str]] = {"csv": to_csv, "json": to_json}
