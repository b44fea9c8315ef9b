"""The members of a registry: resolved from spaces, sets and configs, found by their fields, and merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError, InvalidValueError, choose, require
from tilewright.base.user_progress import format_duration
from tilewright.building.compile_costs import estimate_cpu_s
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops import find_op, kernel_of
from tilewright.ops.fields import ConfigBase, list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.op import Op
from tilewright.ops.space import Space
from tilewright.registry.kernel_names import find_named

# Criteria in addition to the fields and shorthands of the op.
_OWN = ("name", "op", "arch", "built")
# The side that wins if both have different values.
SIDES = ("mine", "theirs")
Result = Artifact | Failure
# Kernels as arguments. A text is the name of a set or of a kernel, a digest, or a kernel-set file.
Kernels = Space | KernelSet | Kernel | ConfigBase | str | Iterable["Kernel | ConfigBase | Space | KernelSet | str"]


def resolve_kernels(named: Kernels, arch: str | Sequence[str] | None, limit: int | None = None) -> tuple[Kernel, ...]:
    """The kernels of spaces, sets, configs and names on each GPU, without duplicates. Kernels already have a GPU.

    More kernels than `limit` are an error with their number and the time to build them.
    """
    require("arch", arch, type(None), str, Iterable)
    given = () if arch is None else (arch,) if isinstance(arch, str) else tuple(arch)
    gpus = tuple(archs.load(name).name for name in given)
    if isinstance(named, Iterator):
        named = tuple(named)  # it is counted again if there are too many
    found: dict[Kernel, None] = {}
    for kernel in _iterate_kernels(named, gpus):
        found[kernel] = None
        if limit is not None and len(found) > limit:
            raise InvalidValueError(_explain_too_many(named, gpus, tuple(found), limit))
    if not found:
        raise InvalidValueError("the list of kernels is empty. Pass at least one kernel, config, space or set")
    return tuple(found)


def _explain_too_many(named: Kernels, gpus: Sequence[str], first: Sequence[Kernel], limit: int) -> str:
    """The message for more kernels than `limit`. `first` are some of them, for the estimate of the time."""
    count = _count_kernels(named, gpus)
    cpu_s = estimate_cpu_s(first) / len(first) * count
    return (
        f"{count:,} kernels would be built, and the limit is {limit:,}. That takes about "
        f"{format_duration(cpu_s)} of CPU time. Set more fields of the space, or pass a larger limit, or limit=None"
    )


def _count_kernels(named: Kernels, gpus: Sequence[str]) -> int:
    """The number of kernels, without listing those of spaces. Kernels that are named twice count twice."""
    if isinstance(named, str):
        return _count_kernels(_find_kernels(named), gpus)
    if isinstance(named, Space):
        return sum(named.count(gpu) for gpu in gpus)
    if isinstance(named, KernelSet):
        return sum(named.report(gpu).kernels for gpu in gpus)
    if isinstance(named, Kernel):
        return 1
    return len(gpus) if isinstance(named, ConfigBase) else sum(_count_kernels(each, gpus) for each in named)


def _iterate_kernels(named: Kernels, gpus: Sequence[str]) -> Iterator[Kernel]:
    if isinstance(named, Kernel):
        if gpus and named.arch not in gpus:
            raise InvalidValueError(f"{named.slug} is a kernel for {named.arch}, but arch is {', '.join(gpus)}")
        yield named
    elif isinstance(named, Space | KernelSet | ConfigBase):
        if not gpus:
            raise InvalidValueError(
                f"a {type(named).__name__} has no GPU: pass arch=, one or more of {', '.join(archs.arch_names())}"
            )
        for gpu in gpus:
            if isinstance(named, ConfigBase):
                yield kernel_of(named, gpu)
            else:
                yield from _iterate_legal(named, gpu)
    elif isinstance(named, str):
        yield from _iterate_kernels(_find_kernels(named), gpus)
    elif not isinstance(named, Iterable):
        raise InvalidValueError(
            f"{named!r} is not a kernel, config, space, kernel set or name of one, nor a list of them"
        )
    else:
        for member in named:
            yield from _iterate_kernels(member, gpus)


def _find_kernels(text: str) -> KernelSet | Kernel:
    found = find_named(text)
    if isinstance(found, Op):
        raise InvalidValueError(
            f"{text} is an op, not kernels. Name one of its sets ({', '.join(found.sets())}), "
            f"or declare a space: tilewright.{text}.space(…)"
        )
    return found


def _iterate_legal(named: Space | KernelSet, gpu: str) -> Iterator[Kernel]:
    """The legal kernels of a space or set on a GPU; none is an error that lists the rules that rejected them."""
    count = 0
    for kernel in named.iter(gpu) if isinstance(named, Space) else named.kernels(gpu):
        count += 1
        yield kernel
    if count == 0:
        what = "this space" if isinstance(named, Space) else f"the set {named.name}"
        raise IllegalConfigError(
            f"{what} has no legal kernel on {gpu}, so there is nothing to build:\n{named.report(gpu)}\n"
            "`tilewright rules CODE` explains a rule. Declare more values, or remove this GPU."
        )


def find_kernels(
    kernels: Sequence[Kernel], results: Mapping[Kernel, Any], wanted: Mapping[str, Any]
) -> tuple[Kernel, ...]:
    """The kernels that match all criteria; a list of values means any of them.

    A kernel does not match if its op lacks a field. A field that no kernel's op has is an error.
    """
    own = {name: value for name, value in wanted.items() if name in _OWN}
    if "arch" in own:
        named = own["arch"] if isinstance(own["arch"], list) else [own["arch"]]
        own["arch"] = [archs.load(name).name for name in named]  # they may be product names
    rest = {name: value for name, value in wanted.items() if name not in _OWN}
    kept = [kernel for kernel in kernels if all(_has_property(kernel, results, *pair) for pair in own.items())]
    ops = dict.fromkeys(kernel.op for kernel in kept)
    known = list(dict.fromkeys(name for op in ops for name in _list_field_names(op)))
    for name in rest:
        if ops:
            choose(f"field of {' and '.join(ops)}", name, (*_OWN, *known))
    return tuple(kernel for kernel in kept if all(_has_field_value(kernel, *pair) for pair in rest.items()))


def _list_field_names(op: str) -> tuple[str, ...]:
    found = find_op(op)
    return (*found.field_names, *found.shorthands)


def _has_property(kernel: Kernel, results: Mapping[Kernel, Any], name: str, value: Any) -> bool:
    if name == "built":
        return isinstance(results.get(kernel), Artifact) is bool(value)
    values = value if isinstance(value, list) else [value]
    if name == "name":
        return any(fnmatchcase(kernel.slug, str(pattern)) for pattern in values)
    return getattr(kernel, name) in values


def _has_field_value(kernel: Kernel, name: str, value: Any) -> bool:
    op = find_op(kernel.op)
    values = value if isinstance(value, list) else [value]
    if name in op.shorthands:
        shorthand = op.shorthands[name]
        mine = tuple(getattr(kernel.config, field) for field in shorthand.fields)
        return any(shorthand.row(one) == mine for one in values)
    if name not in op.field_names:
        return False
    kind = list_fields(op.config_type)[name].kind
    return any(kind.read(name, one) == getattr(kernel.config, name) for one in values)


def merge_results(
    mine: Mapping[Kernel, Result], theirs: Mapping[Kernel, Result], prefer: str | None
) -> dict[Kernel, Result]:
    """An artifact wins over a failure, a failure over nothing. Results with different keys conflict."""
    conflicts = []
    merged = {**theirs, **mine}
    for kernel in mine.keys() & theirs.keys():
        pair = (mine[kernel], theirs[kernel])
        built = [result for result in pair if isinstance(result, Artifact)]
        if len(built) == 1:
            merged[kernel] = built[0]
        elif pair[0].key != pair[1].key:
            conflicts.append(f"{kernel.slug}: {pair[0].key} and {pair[1].key}")
            merged[kernel] = pair[SIDES.index(prefer)] if prefer is not None else pair[0]
    _raise_conflicts("builds", conflicts, prefer)
    return merged


def merge_priorities(mine: Mapping[Kernel, int], theirs: Mapping[Kernel, int], prefer: str | None) -> dict[Kernel, int]:
    """A priority that only one side has is kept; two different ones conflict."""
    conflicts = [
        f"{kernel.slug}: {mine[kernel]} and {theirs[kernel]}"
        for kernel in mine
        if kernel in theirs and mine[kernel] != theirs[kernel]
    ]
    _raise_conflicts("priorities", conflicts, prefer)
    return {**mine, **theirs} if prefer == "theirs" else {**theirs, **mine}


def check_side(prefer: str | None) -> str | None:
    """The side that wins, or None: then a conflict is an error."""
    return None if prefer is None else choose("side of a merge", prefer, SIDES)


def _raise_conflicts(what: str, conflicts: list[str], prefer: str | None) -> None:
    if conflicts and prefer is None:
        rest = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise InvalidValueError(
            f"conflicting {what} of {min(conflicts)}{rest}. Pass prefer={' or prefer='.join(map(repr, SIDES))}."
        )
