"""What ships with the ops keeps its word: sets are legal on every GPU they name; those of GEMM leave no shape out."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from illegal_members import find_illegal_members
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops import OPS, find_op
from tilewright.ops.builtin_sets import find_space
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.kernel_set import KernelSet, dump_kernel_set, load_kernel_set
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations

GEMM = find_op("gemm")
SETS: list[KernelSet] = [found for op in OPS for found in op.sets().values()]
NAMES = {
    "fp16_rcr_essential",
    "fp16_rcr_compute",
    "fp16_rcr_memory",
    "fp16_rcr_latency",
    "fp16_rcr_multi_d",
    "fp16_rcr_preshuffle",
    "fp16_rcr_all",
    "bf16_rcr_essential",
    "fp8_rcr_essential",
    "int8_rcr_essential",
    "mixed_precision",
    "rdna_fp16_rcr_essential",
    "fp32_rcr_essential",
    "fp16_layouts_essential",
    "bf16_layouts_essential",
    "fp32_layouts_essential",
    "rdna_layouts_essential",
}
ESSENTIAL = sorted(name for name in NAMES if name.endswith("essential"))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("folder", ["preselected", "spaces"])
def test_what_ships_is_known_by_unique_names(op: Op, folder: str) -> None:
    files = {path.stem for path in (op.template.parent / folder).glob("*.toml")}
    known = op.sets() if folder == "preselected" else op.spaces()
    assert files, f"nothing ships in {folder} of {op.name}"
    assert set(known) == files, "a file is named as its set"
    assert {found.op for found in known.values()} == {op.name}


def test_the_sets_of_gemm() -> None:
    assert set(GEMM.sets()) == NAMES
    for found in GEMM.sets().values():
        for arch in found.archs:
            count = found.report(arch).kernels
            assert 6 <= count <= 26, f"{found.name} has {count} kernels on {arch}"


@pytest.mark.parametrize("found", SETS, ids=lambda found: found.name)
def test_every_member_is_legal_on_every_gpu_it_names(found: KernelSet) -> None:
    assert found.archs, f"{found.name} names no GPU"
    assert found.doc, f"{found.name} does not say what it is for"
    illegal = find_illegal_members(found)
    assert not illegal, "\n".join(map(str, illegal[:20]))
    for arch in found.archs:
        report = found.report(arch)
        assert report.raw == report.legal == report.kernels, f"{found.name} repeats kernels: {report}"


@pytest.mark.parametrize("found", SETS, ids=lambda found: found.name)
def test_a_set_survives_writing(found: KernelSet, tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_text(dump_kernel_set(found), encoding="utf-8")
    assert load_kernel_set(path) == found


def test_all_is_the_union_and_essential_a_part_of_it() -> None:
    def kernels(name: str) -> set[object]:
        return set(GEMM.sets()[name].kernels("gfx942"))

    union = set().union(*(kernels(f"fp16_rcr_{x}") for x in ("compute", "memory", "latency")))
    assert kernels("fp16_rcr_all") == union
    extra = kernels("fp16_rcr_essential") - union
    assert not extra, f"essential but not in all: {sorted(map(str, extra))}"


@pytest.mark.parametrize("name", ESSENTIAL)
def test_an_essential_set_runs_every_aligned_shape(name: str) -> None:
    found = GEMM.sets()[name]
    rules = GEMM.fit_rules
    for arch in found.archs:
        spec = archs.load(arch)
        configs: list[Any] = [kernel.config for kernel in found.kernels(arch)]
        for dtype, layout in dict.fromkeys((config.dtype_a, config.layout) for config in configs):
            rows = (1, 17, 4096) if layout[0] == "r" else (16, 48, 4096)  # the rows of a column-major A are contiguous
            for m, n, k in itertools.product(rows, (16, 48, 4096), (16, 208, 4096)):
                problem = Problem(m=m, n=n, k=k, dtype=dtype, layout=layout)
                fits = any(not find_violations(rules, config, problem, spec) for config in configs)
                assert fits, f"no kernel of {name} on {arch} runs {m}x{n}x{k} of {dtype} {layout}"


def test_mixed_precision_mixes() -> None:
    for kernel in GEMM.sets()["mixed_precision"].kernels("gfx942"):
        config = kernel.config
        assert isinstance(config, Config)
        assert config.dtype_a != config.dtype_b, f"{kernel} has one type only"


def test_the_default_space_of_tile_engine() -> None:
    assert set(GEMM.spaces()) == {"tile_engine_default"}
    space = find_space(GEMM, "tile_engine_default")
    start = time.process_time()
    report = space.report("gfx942")
    assert time.process_time() - start < 5
    assert report.raw == 622_080
    assert 0 < report.legal < report.raw


def test_a_named_space_takes_overrides() -> None:
    space = find_space(GEMM, "tile_engine_default", dtype="bf16", layout="rrr", pipeline="mem")
    assert space.count_raw("gfx942") == 622_080 // 3
    kernel = next(space.iter("gfx942"))
    assert "bf16-bf16" in kernel.slug
    assert "-rrr-" in kernel.slug


def test_a_named_space_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UnknownValueError, match="Did you mean 'tile_engine_default'"):
        find_space(GEMM, "tile_engine_defalt")
    with pytest.raises(UnknownValueError, match="Did you mean 'layout'"):
        find_space(GEMM, "tile_engine_default", layuot="rcr")
    with pytest.raises(InvalidValueError, match="declared twice"):
        find_space(GEMM, "tile_engine_default", dtype_a="fp16")
