"""Registries as JSON, and merged ones. A file has names, keys, priorities and failures; artifacts are in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.document_values import check_keys, expect_integer, expect_list_items, expect_table, expect_text
from tilewright.base.errors import InvalidValueError, choose
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops import parse_kernel
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


SCHEMA = 2
# Schema 1 had slug and key of each kernel; a failure was stored by its key only.
READABLE = (1, SCHEMA)


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """One kernel of a document. A failure is stored in full, an artifact by its key."""

    kernel: Kernel
    key: str | None
    priority: int | None
    failure: Failure | None


def to_document(
    kernels: Sequence[Kernel], results: Mapping[Kernel, Artifact | Failure], priorities: Mapping[Kernel, int]
) -> dict[str, Any]:
    """The registry as plain JSON values. Values that are not set are left out."""
    return {"schema": SCHEMA, "kernels": [_to_entry(k, results.get(k), priorities.get(k)) for k in kernels]}


def _to_entry(kernel: Kernel, result: Artifact | Failure | None, priority: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"slug": kernel.slug, "key": None if result is None else result.key}
    if priority is not None:
        entry["priority"] = priority
    if isinstance(result, Failure):
        entry["failure"] = {"log": result.log, "facts": dict(result.facts)}
    return entry


def read_document(document: Any) -> Iterator[SavedKernel]:
    """Read a document of this schema or an older one. Raises `InvalidValueError` for other JSON."""
    known = expect_table("the registry", document)
    # Checked first: a file of a newer Tilewright may have other keys.
    schema = expect_integer("schema", known.get("schema"))
    if schema not in READABLE:
        raise InvalidValueError(f"schema is {schema}, supported are {', '.join(map(str, READABLE))}")
    check_keys("the registry", known, ("schema", "kernels"))
    for entry in expect_list_items("kernels", known["kernels"], expect_table):
        check_keys("a kernel", entry, ("slug", "key"), () if schema == 1 else ("priority", "failure"))
        slug, key = expect_text("slug", entry["slug"]), entry["key"]
        key = None if key is None else expect_text(f"key of {slug}", key)
        priority = entry.get("priority")
        priority = None if priority is None else expect_integer(f"priority of {slug}", priority)
        failed = None if entry.get("failure") is None else _parse_failure(slug, key, entry["failure"])
        yield SavedKernel(parse_kernel(slug), key, priority, failed)


def _parse_failure(slug: str, key: str | None, value: Any) -> Failure:
    if key is None:
        raise InvalidValueError(f"{slug} has a failure but no key")
    failure = expect_table(f"failure of {slug}", value)
    check_keys(f"the failure of {slug}", failure, ("log", "facts"))
    facts = expect_table(f"facts of {slug}", failure["facts"])
    # The first of these is shown to users.
    expect_list_items(f"errors of {slug}", facts.get("errors", []), expect_text)
    return Failure(key, expect_text(f"log of {slug}", failure["log"]), facts)
