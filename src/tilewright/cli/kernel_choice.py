"""The kernels that a command works on: preselected sets, kernel-set files, tile_engine files, profiles."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.cli.settings import make_declared_space, read_settings, read_values

DEFAULT = "default"  # the space of an op that is used if none is named
DECLARED = "declared"  # the name of a set that settings declare

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.kernel_set import KernelSet
    from tilewright.ops.op import Op, Profile
    from tilewright.ops.space import Space


def find_set(op: Op, name_or_file: str) -> KernelSet:
    """A preselected set or built-in space by its name, or a kernel-set file by its path."""
    from tilewright.ops.kernel_set import is_kernel_set_path

    if is_kernel_set_path(name_or_file):
        return load_set(op, Path(name_or_file))
    known = {**op.sets(), **op.spaces()}
    found: KernelSet = known[choose(f"set or space of {op.name}", name_or_file, known)]
    return found


def load_set(op: Op, path: Path) -> KernelSet:
    """The set in a file. It must be of this op."""
    from tilewright.ops.kernel_set import load_kernel_set

    found = load_kernel_set(path)
    if found.op != op.name:
        raise InvalidValueError(f"{path} is a set of {found.op}, not of {op.name}")
    return found


def apply_settings(op: Op, kernel_set: KernelSet, texts: Iterable[str]) -> KernelSet:
    """The set with other values for the fields that settings name."""
    from tilewright.ops.space import Space

    changes = read_values(op, texts)
    if not changes:
        return kernel_set
    spaces = tuple(Space(op, {**space.declared, **changes}) for space in kernel_set.spaces)
    return dataclasses.replace(kernel_set, spaces=spaces)


def make_set(op: Op, name: str, space: Space) -> KernelSet:
    """A set of one space: commands work on sets."""
    from tilewright.ops.kernel_set import KernelSet

    return KernelSet(name, "", op.name, (), (space,))


def read_tile_engine_set(
    op: Op, path: Path, texts: Iterable[str], wanted: Mapping[str, tuple[str, ...]] | None = None
) -> KernelSet:
    """The kernels of a tile_engine file. Settings and filters give the fields that such a file lacks.

    There is a space for each combination of the values of filters, which may have several.
    """
    from tilewright.ops.kernel_set import KernelSet

    if "tile_engine" not in op.importers:
        having = [each.name for each in _list_ops_with_tile_engine()]
        raise InvalidValueError(f"Tilewright reads tile_engine files of {', '.join(having)}, not of {op.name}")
    read = op.importers["tile_engine"]
    parameters = inspect.signature(read).parameters.values()
    keywords = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    given: dict[str, list[Any]] = {}
    for name, text in read_settings(texts).items():
        choose("setting for --tile-engine", name, keywords)
        given[name] = [_read_value(op, name, text)]
    for name, values in (wanted or {}).items():
        if name in keywords:
            given.setdefault(name, [_read_value(op, name, text) for text in values])
    missing = [n for n, p in keywords.items() if p.default is p.empty and n not in given]
    if missing:
        needed = " ".join(f"-s {name}=…" for name in missing)
        raise InvalidValueError(f"a tile_engine file does not give {', '.join(missing)}: add {needed}")
    rows = itertools.product(*given.values())
    spaces = tuple(read(path, **dict(zip(given, row, strict=True))) for row in rows)
    return KernelSet("tile_engine", "", op.name, (), spaces)


def _list_ops_with_tile_engine() -> list[Op]:
    from tilewright.ops import list_ops

    return [op for op in list_ops() if "tile_engine" in op.importers]


def _read_value(op: Op, name: str, text: str) -> Any:
    from tilewright.ops.fields import list_fields

    fields = list_fields(op.config_type)
    return fields[name].kind.read(name, text) if name in fields else text


def make_field_filter(op: Op, name: str, texts: Sequence[str]) -> Callable[[Kernel], bool]:
    """A test whether a kernel has one of the values of a field, a shorthand or a property of the config."""
    if is_property(op, name):
        return lambda kernel: str(getattr(kernel.config, name)) in texts
    fields, rows = read_rows(op, name, texts)

    def match_kernel(kernel: Kernel) -> bool:
        return tuple(getattr(kernel.config, field) for field in fields) in rows

    return match_kernel


def is_property(op: Op, name: str) -> bool:
    """Whether a filter is by a property of the config, which follows from its fields."""
    return isinstance(getattr(op.config_type, name, None), property)


def read_rows(op: Op, name: str, texts: Sequence[str]) -> tuple[tuple[str, ...], set[tuple[Any, ...]]]:
    """The fields that a field or shorthand sets, and their values for each text."""
    if name in op.shorthands:
        short = op.shorthands[name]
        return short.fields, {short.row(text) for text in texts}
    choose(f"field of {op.name}", name, (*op.field_names, *op.shorthands))
    return (name,), {(_read_value(op, name, text),) for text in texts}


def find_profile(op: Op, name: str | None) -> Profile | None:
    """The profile of that name, or of that alias: a number by which another tool knows it."""
    resolved = resolve_profile_name(op, name)
    return None if resolved is None else op.profiles[resolved]


def resolve_profile_name(op: Op, name: str | None) -> str | None:
    """The name of the profile with that name or alias."""
    if name is None:
        return None
    if not op.profiles:
        raise InvalidValueError(f"{op.name} has no profiles: omit --profile")
    aliases = {alias: each for each, profile in op.profiles.items() for alias in profile.aliases}
    if name.isdecimal() and name not in aliases:
        known = ", ".join(f"{alias} ({each})" for alias, each in aliases.items())
        raise InvalidValueError(f"{op.name} has no profile for receipt {name}. Known receipts: {known}.")
    return aliases.get(name) or choose(f"profile of {op.name}", name, op.profiles)


def find_sets(
    op: Op,
    arch: str,
    preselected: str | None,
    kernel_set: Path | None,
    profile: Profile | None,
    settings: Sequence[str] = (),
) -> Sequence[KernelSet]:
    """The named set, or all preselected sets of the op for the GPU, with the changes of settings.

    With a profile and no named set it is the profile's own space, or the op's space `default`. Settings alone declare
    a space.
    """
    if settings and preselected is None and kernel_set is None and profile is None:
        return [make_set(op, DECLARED, make_declared_space(op, settings))]
    sets = _find_unchanged_sets(op, arch, preselected, kernel_set, profile)
    return [apply_settings(op, found, settings) for found in sets]


def _find_unchanged_sets(
    op: Op, arch: str, preselected: str | None, kernel_set: Path | None, profile: Profile | None
) -> Sequence[KernelSet]:
    if preselected is not None:
        return [find_set(op, preselected)]
    if kernel_set is not None:
        return [load_set(op, kernel_set)]
    if profile is not None and (space := profile.space or DEFAULT) in op.spaces():
        return [op.spaces()[space]]
    sets = [found for found in op.sets().values() if arch in found.archs]
    if not sets:
        known = sorted({gpu for found in op.sets().values() for gpu in found.archs}, key=lambda gpu: (len(gpu), gpu))
        raise InvalidValueError(
            f"{op.name} has no preselected set for {arch}; it has sets for {', '.join(known) or 'no GPU'}. "
            "Declare kernels with -s, or give --preselected or --kernel-set."
        )
    return sets


def choose_kernels(
    op: Op,
    arch: str,
    sets: Sequence[KernelSet],
    wanted: Mapping[str, tuple[str, ...]],
    limit: int | None,
    profile: Profile | None = None,
) -> dict[Kernel, str]:
    """The matching kernels, each with the first set that has it."""
    from tilewright import arch as archs

    spec = archs.load(arch)
    filters = [make_field_filter(op, name, texts) for name, texts in wanted.items()]
    keep = None if profile is None else functools.partial(_is_wanted, profile, spec)
    members = ((kernel, found.name) for found in sets for kernel in found.kernels(arch, keep))
    chosen: dict[Kernel, str] = {}
    for kernel, name in members:
        if limit is not None and len(chosen) == limit:
            break
        if all(matches(kernel) for matches in filters):
            chosen.setdefault(kernel, name)
    return chosen


def choose_bounded_kernels(
    op: Op,
    arch: str,
    sets: Sequence[KernelSet],
    wanted: Mapping[str, tuple[str, ...]],
    limit: int | None,
    profile: Profile | None = None,
) -> dict[Kernel, str]:
    """Like `choose_kernels`, for commands that write a file per kernel.

    An error if a space, which lists no GPUs, has so many kernels that a field was probably forgotten, and no limit is
    given.
    """
    from tilewright.ops import space

    if limit is not None or all(found.archs for found in sets):
        return choose_kernels(op, arch, sets, wanted, limit, profile)
    most = space.MOST_KERNELS
    chosen = choose_kernels(op, arch, sets, wanted, most + 1, profile)
    if len(chosen) > most:
        source = "-s declares" if sets[0].name == DECLARED else f"{sets[0].name} has"
        raise InvalidValueError(f"{source} more than {most:,} kernels: set more fields, or give --limit N")
    return chosen


def _is_wanted(profile: Profile, arch: Arch, config: Any) -> bool:
    return profile.wants(config, arch)
