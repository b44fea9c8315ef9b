"""Kernel sets: named collections of kernels of one op, kept in TOML or JSON files.

A set consists of one or more spaces and the GPUs it is intended for. Its file names the op. The keys of each
`[[space]]` table are fields of the op's config and the op's shorthands:

    op = "…"
    archs = ["gfx942"]

    [[space]]
    block = ["128x128x32", [256, 128, 32]]  # or {m = [64, 128], n = 64, k = 32}: all combinations
    pipeline = "*"

A JSON file is an object with the same keys; "space" is a list of objects.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tilewright import arch as gpus
from tilewright.base.document_values import expect_table, format_value
from tilewright.base.documents import FileProblems, convert_read_errors, read_json, read_toml
from tilewright.base.errors import FileFormatError, InvalidValueError, choose, require
from tilewright.base.short_text import cut, format_count
from tilewright.ops.declaration import STAR, find_grid_columns, find_tile_type, list_values, to_list
from tilewright.ops.fields import Field, list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.space import Axis, Space, SpaceReport, merge_reports

SUFFIXES = (".toml", ".json")
KEYS = ("op", "name", "doc", "archs", "space")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LINE = 100  # longer arrays are written with one value per line
_SHORT_LIST = 3  # this many tiles are easier to read one by one than per dimension


@dataclass(frozen=True)
class SetReport:
    """The legal part of a set on one GPU, per space, and the number of distinct kernels."""

    name: str
    arch: str
    spaces: tuple[SpaceReport, ...]
    kernels: int
    by: Mapping[Any, SpaceReport]  # the same for each value of a field, if one was given

    @property
    def raw(self) -> int:
        return sum(report.raw for report in self.spaces)

    @property
    def legal(self) -> int:
        return sum(report.legal for report in self.spaces)

    @property
    def removed(self) -> dict[str, int]:
        """How many combinations each rule removed, by the rule's code."""
        counts: dict[str, int] = {}
        for removal in (r for report in self.spaces for r in report.removed):
            counts[removal.rule.code] = counts.get(removal.rule.code, 0) + removal.removed
        return counts

    def __str__(self) -> str:
        lines = [
            f"{self.name} on {self.arch}: {self.kernels:,} kernels; "
            f"{self.legal:,} of {self.raw:,} combinations are legal"
        ]
        lines += [f"  {code}  removed {count:,}" for code, count in self.removed.items() if count]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "set": self.name,
            "arch": self.arch,
            "kernels": self.kernels,
            "raw": self.raw,
            "legal": self.legal,
            "removed": self.removed,
            "spaces": [report.to_json() for report in self.spaces],
        }


@dataclass(frozen=True, repr=False)
class KernelSet:
    """A named collection of kernels of one op.

    `archs` lists the GPUs on which every combination must be legal. A space that is intended to be searched lists
    none.
    """

    name: str
    doc: str
    op: str
    archs: tuple[str, ...]
    spaces: tuple[Space, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "archs", tuple(self.archs))
        object.__setattr__(self, "spaces", tuple(self.spaces))
        _check_name(self.name)
        _check_doc(self.doc)
        for index in range(len(self.archs)):
            _check_arch(self.archs, index)
        if not self.spaces:
            raise InvalidValueError(f"set {self.name!r} has no spaces, it needs at least 1")
        for space in self.spaces:
            if space.op.name != self.op:
                raise InvalidValueError(f"a set of {self.op} cannot contain a space of {space.op.name}")

    def __repr__(self) -> str:
        gpus_ = f" for {', '.join(self.archs)}" if self.archs else ""
        return cut(f"KernelSet({self.name!r}: {self.op}, {format_count(len(self.spaces), 'space')}{gpus_}. {self.doc})")

    def kernels(self, arch: str, keep: Callable[[Any], bool] | None = None) -> Iterator[Kernel]:
        """The legal kernels on a GPU, each once, in the order of the spaces; only those that `keep` accepts."""
        seen: set[Kernel] = set()
        for space in self.spaces:
            for kernel in space.iter(arch, keep):
                if kernel not in seen:
                    seen.add(kernel)
                    yield kernel

    def count_named(self) -> dict[str, int]:
        """The number of kernels of the set on each of its GPUs. All must be legal there, so no rule is checked."""
        if all(space.same_everywhere for space in self.spaces):
            return dict.fromkeys(self.archs, self._count_named_on(self.archs[0])) if self.archs else {}
        return {arch: self._count_named_on(arch) for arch in self.archs}

    def _count_named_on(self, arch: str) -> int:
        axes = [space.list_axes(gpus.load(arch)) for space in self.spaces]
        if _is_disjoint(axes):
            return sum(math.prod(len(axis.values) for axis in each) for each in axes)
        return len(set(itertools.chain.from_iterable(map(_iterate_rows, axes))))

    def report(self, arch: str, by: str | None = None) -> SetReport:
        """The number of kernels on a GPU and of those that each rule removed; also for each value of the field `by`."""
        arch = gpus.load(arch).name  # it may be a product name
        parts = [space.report_by(by, arch) if by else {None: space.report(arch)} for space in self.spaces]
        reports = tuple(merge_reports(list(part.values())) for part in parts)
        by_value: dict[Any, list[SpaceReport]] = {}
        for value, report in ((value, report) for part in parts for value, report in part.items() if by):
            by_value.setdefault(value, []).append(report)
        # The members of one space differ. Only overlapping spaces can repeat a kernel.
        apart = _is_disjoint([space.list_axes(gpus.load(arch)) for space in self.spaces])
        distinct = sum(report.legal for report in reports) if apart else sum(1 for _ in self.kernels(arch))
        return SetReport(self.name, arch, reports, distinct, {v: merge_reports(each) for v, each in by_value.items()})


def _iterate_rows(axes: Sequence[Axis]) -> Iterator[tuple[Any, ...]]:
    """Every combination of values, with the fields in an order that depends on their names only."""
    names = [name for axis in axes for name in axis.fields]
    order = sorted(range(len(names)), key=lambda place: names[place])
    for rows in itertools.product(*(axis.values for axis in axes)):
        values = tuple(itertools.chain.from_iterable(rows))
        yield tuple([values[place] for place in order])


def _is_disjoint(spaces: Sequence[Sequence[Axis]]) -> bool:
    """Whether there is a field for which no two spaces have a common value, so that no kernel is in two spaces."""
    if len(spaces) == 1:
        return True
    taken: dict[str, list[set[Any]]] = {}
    for axis in itertools.chain.from_iterable(spaces):
        for name, values in zip(axis.fields, zip(*axis.values, strict=True), strict=True):
            taken.setdefault(name, []).append(set(values))
    return any(sum(map(len, sets)) == len(set().union(*sets)) for sets in taken.values())


def _check_name(name: object) -> None:
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidValueError(f"a set's name consists of letters, digits, '_', '-' and '.', got {format_value(name)}")


def _check_doc(doc: object) -> None:
    if not isinstance(doc, str):
        raise InvalidValueError(f"must be a text, got {format_value(doc)}")


def _check_arch(archs: Sequence[Any], index: int) -> None:
    choose("arch", archs[index], gpus.arch_names())
    if archs[index] in archs[:index]:
        raise InvalidValueError(f"{archs[index]} is listed twice")


def is_kernel_set_path(text: str) -> bool:
    """Whether a text is the path of a kernel-set file, and not a name."""
    return text.endswith(SUFFIXES) or "/" in text


def load_kernel_set(path: Path | str) -> KernelSet:
    """Read a kernel-set file: JSON if its name ends in `.json`, else TOML.

    Raises `FileFormatError`, which lists all problems of the file.
    """
    require("path", path, str, PathLike)
    path = Path(path)
    with convert_read_errors(path):
        is_json = path.suffix == ".json"
        return _parse_kernel_set(path, expect_table("a kernel set", read_json(path)) if is_json else read_toml(path))


def _parse_kernel_set(path: Path, raw: Mapping[str, Any]) -> KernelSet:
    problems = FileProblems()
    for key in raw:
        problems.try_call(key, choose, "key", key, KEYS)
    name, doc, archs = raw.get("name", path.stem), raw.get("doc", ""), raw.get("archs", [])
    problems.try_call("name", _check_name, name)
    problems.try_call("doc", _check_doc, doc)
    if not isinstance(archs, list):
        problems.add("archs", f'must be a list such as ["gfx942"], got {format_value(archs)}')
        archs = []
    for index in range(len(archs)):
        problems.try_call(f"archs.{index}", _check_arch, archs, index)
    tables = problems.try_call("space", _read_tables, raw) or []
    op = problems.try_call("op", _read_op, raw)
    spaces = [_read_space(op, f"space.{i}", t, problems) for i, t in enumerate(tables) if op]
    if problems.found or op is None:
        raise FileFormatError(path, problems.found)
    return KernelSet(name, doc, op.name, tuple(archs), tuple(s for s in spaces if s is not None))


def _read_op(raw: Mapping[str, Any]) -> Op:
    from tilewright.ops import find_op  # noqa: PLC0415  (the ops there import this module)

    if "op" not in raw:
        raise InvalidValueError("missing: give the op of these kernels")
    return find_op(raw["op"])


def _read_tables(raw: Mapping[str, Any]) -> list[Any]:
    tables = raw.get("space", [])
    if isinstance(tables, list) and tables:
        return tables
    raise InvalidValueError("missing: a set has one or more [[space]] tables")


def _read_space(op: Op, where: str, table: object, problems: FileProblems) -> Space | None:
    """One [[space]] table. If it has problems, they are added to `problems` and the result is None."""
    if not isinstance(table, dict):
        problems.add(where, f"must be a table, got {format_value(table)}")
        return None
    before = len(problems.found)
    declared = {key: _read_key(op, key, f"{where}.{key}", table[key], problems) for key in table}
    owners: dict[str, str] = {}  # field → the key that binds it
    for key in declared:
        for name in op.shorthands[key].fields if key in op.shorthands else (key,):
            if name in owners:
                problems.add(f"{where}.{key}", f"{name} is already bound by {owners[name]!r}")
            owners[name] = key
    for name, field in list_fields(op.config_type).items():
        if field.required and name not in owners:
            problems.add(f"{where}.{name}", 'missing: give a value, a list, or "*"')
    return Space(op, declared) if len(problems.found) == before else None


def _read_key(op: Op, key: str, where: str, value: object, problems: FileProblems) -> Any:
    """The declaration of one key of a [[space]] table: "*" or its valid values."""
    fields = list_fields(op.config_type)
    before = len(problems.found)
    problems.try_call(where, choose, f"key of a space of {op.name}", key, (*op.shorthands, *fields))
    if len(problems.found) > before:
        return ()
    if key in op.shorthands and op.shorthands[key].stars and isinstance(value, str) and value == STAR:
        return STAR
    if key in op.shorthands:
        single = problems.try_call(where, to_list, key, value) or ()
        return tuple(v for v in single if problems.try_call(where, _read_shorthand, op, key, v))
    field = fields[key]
    if isinstance(value, str) and value == STAR:
        if key not in op.stars and not getattr(field.kind, "values", None):
            problems.add(where, f'{key} cannot be "*": list its values')
        return STAR
    single = problems.try_call(where, list_values, field, value) or ()
    # None may be a valid value, so an invalid one is detected by the problem that it adds.
    return tuple(problems.try_call(where, field.kind.read, key, v) for v in single)


def _read_shorthand(op: Op, key: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, (list, dict)):
        raise InvalidValueError(f"{key} must be a value or a list of values, got {format_value(value)} in it")
    return op.shorthands[key].row(str(value))


def dump_kernel_set(kernel_set: KernelSet) -> str:
    """The set as TOML. `load_kernel_set` reads an equal set from it."""
    lines = [
        f"op = {_format_text(kernel_set.op)}",
        f"name = {_format_text(kernel_set.name)}",
        f"doc = {_format_text(kernel_set.doc)}",
        f"archs = {_format_array('archs', [_format_text(arch) for arch in kernel_set.archs])}",
    ]
    for space in kernel_set.spaces:
        fields = list_fields(space.op.config_type)
        lines += ["", "[[space]]"]
        for key, declared in space.declared.items():
            lines.append(f"{key} = {_format_declaration(key, fields.get(key), declared)}")
    return "\n".join(lines) + "\n"


def _format_declaration(key: str, field: Field | None, declared: Sequence[Any]) -> str:
    """The right-hand side of one key, for a field or for a shorthand (no field)."""
    if declared == STAR:
        return _format_text(STAR)
    values = list(declared)
    tile = find_tile_type(field) if field else None
    if tile and len(values) > _SHORT_LIST and None not in values:
        columns = find_grid_columns(values)
        if columns:
            cells = (f"{x} = {c}" for x, c in zip(tile.labels, columns, strict=True))
            return "{ " + ", ".join(cells) + " }"
    written = [_format_value(field, value) for value in values]
    return written[0] if len(written) == 1 else _format_array(key, written)


def _format_value(field: Field | None, value: object) -> str:
    plain = field.kind.to_json(value) if field else value
    if type(plain) is bool:
        return "true" if plain else "false"
    if type(plain) is int:
        return str(plain)
    # Values that TOML has no type for (tiles, None) are written as in names.
    return _format_text(plain if isinstance(plain, str) or field is None else field.kind.to_token(value))


def _format_array(key: str, written: Sequence[str]) -> str:
    line = f"[{', '.join(written)}]"
    if len(key) + len(line) + 3 <= _LINE:
        return line
    return "[\n" + "".join(f"    {value},\n" for value in written) + "]"


def _format_text(value: object) -> str:
    """A TOML basic string. JSON's escapes are valid in TOML, but JSON does not escape DEL."""
    try:
        text = str(value)
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"{value!r} is not valid Unicode, so TOML cannot contain it") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
