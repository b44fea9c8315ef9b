"""A registry as JSON: names, keys, priorities and failures, with a version. Artifacts stay in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel

SCHEMA = 2
# Schema 1 had slug and key of each kernel; a failure was known by its key only.
READABLE = (1, SCHEMA)


@dataclass(frozen=True, slots=True)
class Saved:
    """One kernel of a document. A failure is there itself, an artifact by its key."""

    kernel: Kernel
    key: str | None
    priority: int | None
    failure: Failure | None


def document_of(
    kernels: Sequence[Kernel], results: Mapping[Kernel, Artifact | Failure], priorities: Mapping[Kernel, int]
) -> dict[str, Any]:
    """The registry as plain JSON values. What is not set is not written."""
    return {"schema": SCHEMA, "kernels": [_entry(k, results.get(k), priorities.get(k)) for k in kernels]}


def _entry(kernel: Kernel, result: Artifact | Failure | None, priority: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"slug": kernel.slug, "key": None if result is None else result.key}
    if priority is not None:
        entry["priority"] = priority
    if isinstance(result, Failure):
        entry["failure"] = {"log": result.log, "facts": dict(result.facts)}
    return entry


def read_document(document: Any) -> Iterator[Saved]:
    """What `document_of` wrote, of this schema or an older one. Raises what JSON of another form leads to."""
    schema = document["schema"]
    if schema not in READABLE:
        raise ValueError(f"schema is {schema!r}, known are {', '.join(map(str, READABLE))}")
    fields = {"slug", "key"} if schema == 1 else {"slug", "key", "priority", "failure"}
    for entry in document["kernels"]:
        if unknown := sorted(set(entry) - fields):
            raise ValueError(f"a kernel has {', '.join(unknown)}, known are {', '.join(sorted(fields))}")
        key, priority, failure = entry["key"], entry.get("priority"), entry.get("failure")
        if not isinstance(key, str | None) or not (priority is None or type(priority) is int):
            raise ValueError(f"key {key!r} must be text or null, priority {priority!r} a whole number")
        if failure is not None and key is None:
            raise ValueError(f"{entry['slug']} has a failure but no key")
        failed = None if failure is None else Failure(str(key), str(failure["log"]), dict(failure["facts"]))
        yield Saved(parse_kernel(str(entry["slug"])), key, priority, failed)
