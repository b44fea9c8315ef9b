"""Merges two registries."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import InvalidValueError, choose
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops.kernel import Kernel

Result = Artifact | Failure
# The side that wins if both have different values.
SIDES = ("mine", "theirs")


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
