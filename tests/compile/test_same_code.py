"""What makes compiling faster changes nothing: the code objects are those of the plain build, byte for byte."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

from built_kernels import STORE, built_unchecked, in_ci, in_tier_ci
from ci_kernels import read_list
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright import arch as archs
from tilewright.building.code_object import disassemble
from tilewright.building.compile import compile_device
from tilewright.building.compile_job import CODE_OBJECT, make_compile_job
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op, list_ops, parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import is_legal

pytestmark = pytest.mark.compile

PLAIN = ("-DTILEWRIGHT_NO_SHORTCUTS", "-DTILEWRIGHT_WHOLE_HOST")
SMALL = {"block": (64, 64, 32), "mma": (16, 16, 16)}
# One of each pipeline, epilogue, variant and kind of GPU.
KERNELS = {
    "compv3": ("gfx942", SMALL),
    "mem-split-k": ("gfx90a", {**SMALL, "pipeline": "mem", "scheduler": "interwave", "split_k": True}),
    "compv4-default": ("gfx942", {**SMALL, "pipeline": "compv4", "epilogue": "default", "layout": "rrr"}),
    "multi-d-bf16": (
        "gfx950",
        {
            **SMALL,
            "variant": "multi_d",
            "num_d": 2,
            "elementwise": "MultiDAdd",
            "mma": (16, 16, 32),
            "block": (64, 64, 64),
        },
    ),
    "batched-padded": ("gfx942", {**SMALL, "variant": "batched", "pad_m": True, "pad_n": True, "pad_k": True}),
    "rdna": ("gfx1100", {"block": (64, 64, 32), "mma": (16, 16, 16)}),
}


# Kernels with this pipeline may set the registers of C to zero in another order. Registers then have other numbers, and
# wait states may not be needed.
REORDERED = "preshufflev2"

# The plain build takes three times as long: CI has time for one.
CASES = [name if name == "compv3" else pytest.param(name, marks=pytest.mark.deep) for name in KERNELS]


def make_kernel(name: str) -> Kernel:
    arch, fields = KERNELS[name]
    return Kernel("gemm", find_op("gemm").make_example(fields), arch)


def draw_kernels(count: int) -> list[str]:
    """Legal kernels of CI's list, of each op in turn. The list also has kernels that must not compile."""
    plain = [entry.name for entry in read_list() if not set("+@") & set(entry.name) and is_legal_kernel(entry.kernel)]
    shuffled = random.Random(22).sample(plain, len(plain))
    by_op = [[name for name in shuffled if name.startswith(f"{op.name}-")] for op in list_ops()]
    turns = itertools.zip_longest(*by_op)
    return [name for turn in turns for name in turn if name is not None][:count]


def is_legal_kernel(kernel: Kernel) -> bool:
    return is_legal(find_op(kernel.op).rules, kernel.config, archs.load(kernel.arch))


@pytest.mark.parametrize("name", CASES)
def test_the_code_is_that_of_the_plain_build(name: str, tmp_path: Path) -> None:
    compare_with_plain_build(make_kernel(name), tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("slug", draw_kernels(30))
def test_the_code_of_kernels_of_all_ops_is_that_of_the_plain_build(slug: str, tmp_path: Path) -> None:
    compare_with_plain_build(parse_kernel(slug), tmp_path)


@pytest.mark.deep
@pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)
@pytest.mark.parametrize("name", KERNELS)
def test_the_code_is_that_of_the_plain_build_with_the_newer_tree(name: str, tmp_path: Path) -> None:
    with use_tree(TREES / NEWER):
        compare_with_plain_build(make_kernel(name), tmp_path)


def compare_with_plain_build(kernel: Kernel, tmp_path: Path) -> None:
    unit = make_compile_job(kernel, find_toolchain())
    spec = archs.load(kernel.arch)
    source = unit.source
    plain = compile_device(
        source.text, spec, unit.toolchain, tmp_path / "plain.co", files=source.files, extra_flags=PLAIN
    )
    assert plain.ok, plain.log
    if in_tier_ci() and in_ci(kernel):  # it is built already
        (tmp_path / "ours.co").write_bytes(built_unchecked(kernel).verify_file(CODE_OBJECT).read_bytes())
    else:
        pch = prepare_header_set(unit.device_headers, STORE)
        ours = compile_device(
            source.text, spec, unit.toolchain, tmp_path / "ours.co", files=unit.own_files, extra_flags=pch.flags
        )
        assert ours.ok, ours.log
    if getattr(kernel.config, "pipeline", "") == REORDERED:
        assert count_instructions(tmp_path / "ours.co", kernel) == count_instructions(tmp_path / "plain.co", kernel)
    else:
        assert (tmp_path / "ours.co").read_bytes() == (tmp_path / "plain.co").read_bytes()


def count_instructions(path: Path, kernel: Kernel) -> Counter[str]:
    """How often each instruction is in a code object, without wait states and whatever its registers."""
    code = disassemble(path, archs.load(kernel.arch), find_toolchain())
    names = (each.text.split()[0] for body in code.values() for each in body)
    return Counter(name for name in names if name != "s_nop")
