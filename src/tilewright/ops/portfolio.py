"""Portfolios: the kernels from which functions for arrays select."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.declaration import STAR
from tilewright.ops.fields import list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.space import Space, merge_reports

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class KernelPortfolio:
    """Kernel-set files of an op, and the fields that a problem fixes.

    `fields` returns, for a problem on a GPU, what replaces the values of the files: a mapping for each stage that the
    problem may need. The fields in `matched` are not replaced: only spaces that declare their value are used.
    """

    folder: Path
    fields: Callable[[Any, Arch], tuple[Fields, ...]]
    matched: tuple[str, ...] = ()

    def list_kernels(self, problem: Any, arch: Arch) -> tuple[Kernel, ...]:
        """The legal kernels of the files with the fields of a problem. Not all of them support it.

        Problems with the same fields get the same tuple.
        """
        rows = tuple(tuple(sorted(row.items())) for row in self.fields(problem, arch))
        return _list_all_legal(self.folder, self.matched, arch, rows)

    def explain(self, problem: Any, arch: Arch) -> str:
        """The rules that reject all kernels for a problem, with the numbers of kernels."""
        rows = self.fields(problem, arch)
        reports = [
            space.report(arch.name) for row in rows for space in _list_spaces(self.folder, self.matched, dict(row))
        ]
        if not reports:
            wanted = ", ".join(f"{name} {row[name]}" for row in rows for name in self.matched)
            return f"The portfolio has no kernels with {wanted}."
        return str(merge_reports(reports))


def fix_fields(*names: str) -> Callable[[Any, Arch], tuple[Fields, ...]]:
    """For problems of one stage: they fix the fields that have these names in the config, too."""
    return lambda problem, _: ({name: getattr(problem, name) for name in names},)


@functools.lru_cache(maxsize=256)
def _list_all_legal(
    folder: Path, matched: tuple[str, ...], arch: Arch, rows: tuple[tuple[tuple[str, Any], ...], ...]
) -> tuple[Kernel, ...]:
    return tuple(dict.fromkeys(kernel for fields in rows for kernel in _list_legal(folder, matched, arch, fields)))


@functools.lru_cache(maxsize=256)
def _list_legal(
    folder: Path, matched: tuple[str, ...], arch: Arch, fields: tuple[tuple[str, Any], ...]
) -> tuple[Kernel, ...]:
    spaces = _list_spaces(folder, matched, dict(fields))
    return tuple(dict.fromkeys(kernel for space in spaces for kernel in space.iter(arch.name)))


def _list_spaces(folder: Path, matched: tuple[str, ...], fields: Fields) -> list[Space]:
    declared = [space for each in load_sets(folder).values() for space in each.spaces]
    return [
        Space(space.op, _replace_fields(space, fields))
        for space in declared
        if all(_declares(space, name, fields[name]) for name in matched)
    ]


def _declares(space: Space, name: str, value: object) -> bool:
    """Whether a space declares a value of a field, by itself or by a shorthand."""
    shorthands = space.op.shorthands
    for short, values in space.declared.items():
        if short in shorthands and name in shorthands[short].fields:
            return values == STAR or any(shorthands[short].expand_value(each)[name] == value for each in values)
    field = list_fields(space.op.config_type)[name]
    values = space.declared.get(name, STAR if field.required else (field.default,))
    return values == STAR or value in values


def _replace_fields(space: Space, fields: Fields) -> dict[str, Any]:
    """The declaration of a space with other values; a shorthand whose fields are given is left out."""
    short = {name for name, each in space.op.shorthands.items() if set(each.fields) & fields.keys()}
    return {**{name: value for name, value in space.declared.items() if name not in short}, **fields}
