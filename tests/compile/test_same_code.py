"""What makes compiling faster changes nothing: the code objects are those of the plain build, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from built_kernels import STORE
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright import arch as archs
from tilewright.building.compile import compile_device
from tilewright.building.compile_job import make_compile_job
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

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


# The plain build takes three times as long: CI has time for one.
CASES = [name if name == "compv3" else pytest.param(name, marks=pytest.mark.deep) for name in KERNELS]


@pytest.mark.parametrize("name", CASES)
def test_the_code_is_that_of_the_plain_build(name: str, tmp_path: Path) -> None:
    compare_with_plain_build(name, tmp_path)


@pytest.mark.deep
@pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)
@pytest.mark.parametrize("name", KERNELS)
def test_the_code_is_that_of_the_plain_build_with_the_newer_tree(name: str, tmp_path: Path) -> None:
    with use_tree(TREES / NEWER):
        compare_with_plain_build(name, tmp_path)


def compare_with_plain_build(name: str, tmp_path: Path) -> None:
    arch, fields = KERNELS[name]
    op = find_op("gemm")
    unit = make_compile_job(Kernel("gemm", op.make_example(fields), arch), find_toolchain())
    spec = archs.load(arch)
    source = unit.source
    pch = prepare_header_set(unit.device_headers, STORE)
    plain = compile_device(
        source.text, spec, unit.toolchain, tmp_path / "plain.co", files=source.files, extra_flags=PLAIN
    )
    ours = compile_device(source.text, spec, unit.toolchain, tmp_path / "ours.co", extra_flags=pch.flags)

    assert plain.ok, plain.log
    assert ours.ok, ours.log
    assert (tmp_path / "ours.co").read_bytes() == (tmp_path / "plain.co").read_bytes()
    print(f"{name}: {plain.cpu_s:.1f} s plain, {ours.cpu_s:.1f} s ours")
