"""Registries as JSON: names, keys, priorities and failures, and on request everything that is known of each kernel.

Artifacts are in the store; a document has their keys.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.base.document_values import check_keys, expect_integer, expect_list_items, expect_table, expect_text
from tilewright.base.errors import InvalidValueError
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.fields import list_fields
from tilewright.ops.kernel import Kernel
from tilewright.registry.member_texts import describe_state

# Schema 1 had slug and key of each kernel; a failure was stored by its key only. Schema 3 is the full document.
SCHEMA, FULL_SCHEMA = 2, 3
READABLE = (1, SCHEMA, FULL_SCHEMA)
_FACTS = ("op", "arch", "config")


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """One kernel of a document. A failure is stored in full, an artifact by its key."""

    kernel: Kernel
    key: str | None
    priority: int | None
    failure: Failure | None


def to_document(
    kernels: Sequence[Kernel],
    results: Mapping[Kernel, Artifact | Failure],
    priorities: Mapping[Kernel, int],
    *,
    full: bool = False,
) -> dict[str, Any]:
    """The registry as plain JSON values. Values that are not set are left out.

    A `full` document also has statistics, and of each kernel all fields and the resources of its build.
    """
    entries = [_to_entry(kernel, results.get(kernel), priorities.get(kernel), full=full) for kernel in kernels]
    if not full:
        return {"schema": SCHEMA, "kernels": entries}
    return {"schema": FULL_SCHEMA, "statistics": count_kernels(kernels, results), "kernels": entries}


def _to_entry(
    kernel: Kernel, result: Artifact | Failure | None, priority: int | None, *, full: bool = False
) -> dict[str, Any]:
    entry: dict[str, Any] = {"slug": kernel.slug, "key": None if result is None else result.key}
    if priority is not None:
        entry["priority"] = priority
    if isinstance(result, Failure):
        entry["failure"] = {"log": result.log, "facts": dict(result.facts)}
    if full:
        entry |= copy.deepcopy(kernel.facts)  # the kernel keeps them
        if isinstance(result, Artifact):
            entry["resources"] = [asdict(each) for each in result.resources]
    return entry


def count_kernels(kernels: Sequence[Kernel], results: Mapping[Kernel, Artifact | Failure]) -> dict[str, Any]:
    """The numbers of kernels by state, op and GPU, and for each op by the values of fields that have a list of them."""
    return {
        "kernels": len(kernels),
        "state": dict(Counter(describe_state(results.get(kernel)) for kernel in kernels)),
        "op": dict(Counter(kernel.op for kernel in kernels)),
        "arch": dict(Counter(kernel.arch for kernel in kernels)),
        "fields": {
            op: _count_values(op, [kernel for kernel in kernels if kernel.op == op])
            for op in dict.fromkeys(kernel.op for kernel in kernels)
        },
    }


def _count_values(op: str, kernels: Sequence[Kernel]) -> dict[str, dict[str, int]]:
    fields = list_fields(find_op(op).config_type)
    kinds = {name: field.kind for name, field in fields.items() if getattr(field.kind, "values", None)}
    return {
        name: dict(Counter(_format_value(kind.to_json(getattr(kernel.config, name))) for kernel in kernels))
        for name, kind in kinds.items()
    }


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_document(document: Any) -> Iterator[SavedKernel]:
    """Read a document of these schemas, full or not. Raises `InvalidValueError` for other JSON."""
    known = expect_table("the registry", document)
    # Checked first: a file of a newer Tilewright may have other keys.
    schema = expect_integer("schema", known.get("schema"))
    if schema not in READABLE:
        raise InvalidValueError(f"schema is {schema}, supported are {', '.join(map(str, READABLE))}")
    check_keys("the registry", known, ("schema", "kernels"), ("statistics",) if schema == FULL_SCHEMA else ())
    optional = () if schema == 1 else ("priority", "failure")
    facts = (*_FACTS, "resources") if schema == FULL_SCHEMA else ()
    for entry in expect_list_items("kernels", known["kernels"], expect_table):
        check_keys("a kernel", entry, ("slug", "key"), (*optional, *facts))
        slug, key = expect_text("slug", entry["slug"]), entry["key"]
        key = None if key is None else expect_text(f"key of {slug}", key)
        priority = entry.get("priority")
        priority = None if priority is None else expect_integer(f"priority of {slug}", priority)
        failed = None if entry.get("failure") is None else _parse_failure(slug, key, entry["failure"])
        kernel = parse_kernel(slug)
        _check_facts(kernel, entry)
        yield SavedKernel(kernel, key, priority, failed)


def _check_facts(kernel: Kernel, entry: Mapping[str, Any]) -> None:
    """Raise an error if a full document gives a kernel other fields than its name: one of them was edited."""
    for name in _FACTS:
        if name in entry and entry[name] != kernel.facts[name]:
            raise InvalidValueError(f"{name} of {kernel.slug} is not that of its name: change the name, or neither")


def _parse_failure(slug: str, key: str | None, value: Any) -> Failure:
    if key is None:
        raise InvalidValueError(f"{slug} has a failure but no key")
    failure = expect_table(f"failure of {slug}", value)
    check_keys(f"the failure of {slug}", failure, ("log", "facts"))
    facts = expect_table(f"facts of {slug}", failure["facts"])
    # The first of these is shown to users.
    expect_list_items(f"errors of {slug}", facts.get("errors", []), expect_text)
    return Failure(key, expect_text(f"log of {slug}", failure["log"]), facts)
