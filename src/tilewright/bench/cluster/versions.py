"""Whether a node has the software and the GPU that a task names: a result under others would be another result."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.bench.gpu_model import parsed


def unlike(versions: str, node: Mapping[str, str]) -> str:
    """What differs, in words; empty when nothing does. `versions` are those of a task, of `versions_text`.

    Compared is what both tell: the compiler is that of the node that builds, and part of the key in the store.
    """
    wanted = parsed(versions)
    return ", ".join(
        f"{name} {there} instead of {wanted[name]}" for name, there in node.items() if wanted.get(name, there) != there
    )
