"""A portfolio's file: it names exactly the kernels that were chosen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from illegal_members import find_illegal_members
from tilewright.base.errors import InvalidValueError
from tilewright.ops import find_op, list_ops
from tilewright.ops.builtin_sets import make_explicit_set
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import dump_kernel_set, load_kernel_set
from tilewright.ops.op import Op

SETS = [(op, name, arch) for op in list_ops() for name, found in op.sets().items() for arch in found.archs]


def drawn(op: Op, name: str, arch: str, count: int = 12) -> list[Kernel]:
    """Kernels of a shipped set, in an order that is not the set's."""
    kernels = list(op.sets()[name].kernels(arch))
    return random.Random(f"{name} {arch}").sample(kernels, min(count, len(kernels)))


@pytest.mark.parametrize(("op", "name", "arch"), SETS, ids=lambda each: each if isinstance(each, str) else each.name)
def test_a_file_reads_back_as_the_same_kernels_in_the_same_order(op: Op, name: str, arch: str, tmp_path: Path) -> None:
    kernels = drawn(op, name, arch)
    made = make_explicit_set(op, arch, "chosen", "Those that matter.", kernels)
    path = tmp_path / "chosen.toml"
    path.write_text(dump_kernel_set(made), encoding="utf-8")
    read = load_kernel_set(path)

    assert read == made
    assert list(read.kernels(arch)) == kernels
    assert find_illegal_members(read) == []


def test_kernels_of_another_gpu_or_op_are_refused() -> None:
    gemm = find_op("gemm")
    kernels = drawn(gemm, "fp16_rcr_essential", "gfx942", 2)

    with pytest.raises(InvalidValueError, match=f"gemm kernels for gfx950 cannot contain {kernels[0].slug}"):
        make_explicit_set(gemm, "gfx950", "chosen", "", kernels)
    with pytest.raises(InvalidValueError, match="fmha kernels for gfx942 cannot contain"):
        make_explicit_set(find_op("fmha"), "gfx942", "chosen", "", kernels)
