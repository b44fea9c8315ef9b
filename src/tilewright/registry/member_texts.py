"""The members of a registry as text: one line for a prompt, and the cells of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tilewright.base.short_text import cut, join_counts
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops.kernel import Kernel

CELLS = ("kernel", "op", "GPU", "state", "VGPRs")


def describe_members(kernels: Sequence[Kernel], results: Mapping[Kernel, Artifact | Failure]) -> str:
    """`10 gemm kernels for gfx942: 8 built, 1 failed, 1 not built`."""
    ops = Counter(kernel.op for kernel in kernels)
    gpus = dict.fromkeys(kernel.arch for kernel in kernels)
    states = Counter(describe_state(results.get(kernel)) for kernel in kernels)
    listed = " and ".join(f"{count:,} {op}" for op, count in ops.items()) or "0"
    noun = "kernel" if len(kernels) == 1 else "kernels"
    counts = join_counts(*((states[state], state) for state in ("built", "failed", "not built")))
    return cut(f"{listed} {noun}{' for ' if gpus else ''}{', '.join(gpus)}{': ' if counts else ''}{counts}")


def list_cells(kernel: Kernel, result: Artifact | Failure | None) -> tuple[object, ...]:
    """The cells of a kernel in a table with the columns `CELLS`."""
    resources = result.resources if isinstance(result, Artifact) else ()
    vgprs = max((each.vgprs for each in resources), default=None)
    return kernel.slug, kernel.op, kernel.arch, describe_state(result), vgprs


def describe_state(result: Artifact | Failure | None) -> str:
    """`built`, `failed` or `not built`."""
    if result is None:
        return "not built"
    return "built" if isinstance(result, Artifact) else "failed"
