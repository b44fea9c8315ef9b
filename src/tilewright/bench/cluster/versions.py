"""Check that a node has a task's software and GPU: results from different software versions are not comparable."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.bench.gpu_model import parse_versions


def describe_differences(versions: str, node: Mapping[str, str]) -> str:
    """A description of the differences; empty if there are none. `versions` are a task's, from `format_versions`.

    Only names that both sides have are compared: the compiler is that of the building node, and part of the store key.
    """
    wanted = parse_versions(versions)
    return ", ".join(
        f"{name} {there} instead of {wanted[name]}" for name, there in node.items() if wanted.get(name, there) != there
    )
