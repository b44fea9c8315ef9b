"""Two registries as one."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import InvalidValueError, choose
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops.kernel import Kernel

Result = Artifact | Failure
# Which side counts where both have something and it differs.
SIDES = ("mine", "theirs")


def merged_results(
    mine: Mapping[Kernel, Result], theirs: Mapping[Kernel, Result], prefer: str | None
) -> dict[Kernel, Result]:
    """An artifact counts more than a failure, a failure more than nothing. Two artifacts of different keys conflict."""
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
    _complain("was built in two ways", conflicts, prefer)
    return merged


def merged_priorities(
    mine: Mapping[Kernel, int], theirs: Mapping[Kernel, int], prefer: str | None
) -> dict[Kernel, int]:
    """A priority that one side set is kept; two that differ conflict."""
    conflicts = [
        f"{kernel.slug}: {mine[kernel]} and {theirs[kernel]}"
        for kernel in mine
        if kernel in theirs and mine[kernel] != theirs[kernel]
    ]
    _complain("has two priorities", conflicts, prefer)
    return {**mine, **theirs} if prefer == "theirs" else {**theirs, **mine}


def checked_side(prefer: str | None) -> str | None:
    """Which side counts, or None: nobody decided, so a conflict is an error."""
    return None if prefer is None else choose("side of a merge", prefer, SIDES)


def _complain(what: str, conflicts: list[str], prefer: str | None) -> None:
    if conflicts and prefer is None:
        rest = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise InvalidValueError(
            f"a kernel {what}: {min(conflicts)}{rest}. Say which counts with prefer={' or '.join(map(repr, SIDES))}."
        )
