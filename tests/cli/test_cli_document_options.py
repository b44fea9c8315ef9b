"""Every value in the option tables of CK's generators: `generate` and `select` have kernels for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.ops import parse_kernel

# Option tables of CK's GEMM generator.
DATATYPES = ("fp16", "bf16", "fp32", "int8")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
VARIANTS = ("standard", "preshuffle", "multi_d")
ELEMENTWISE = ("PassThrough", "MultiDAdd", "Relu", "Gelu", "Sigmoid", "Tanh")
SETS = (
    *(f"fp16_rcr_{name}" for name in ("essential", "compute", "memory", "latency", "all", "multi_d", "preshuffle")),
    *("bf16_rcr_essential", "int8_rcr_essential", "fp8_rcr_essential", "mixed_precision"),
)
# GPUs of its tables; those of RDNA have no fp32 and no preshuffle.
CDNA = ("gfx908", "gfx90a", "gfx942", "gfx950")
GPUS = (*CDNA, "gfx1100", "gfx1200", "gfx1201")
# Option tables of its convolution generator, and names of its attention profiles with their receipts.
DIRECTIONS = ("forward", "backward_data", "backward_weight")
RECEIPTS = {
    **{"0": "ck_default", "1": "ck_default", "2": "flash", "3": "flash", "4": "pytorch", "888": "fp8"},
    **{"100": "aiter", "200": "aiter", "300": "aiter", "400": "aiter", "600": "aiter", "800": "fp32", "801": "fp32"},
}
MOST_OF_A_PROFILE = 800  # kernels: less than a day of a 32-core machine
SIZES = "m=256,n=256,k=256"

RunJson = Callable[..., Any]
Generate = Callable[..., list[Any]]


@pytest.fixture
def generate(run_json: RunJson, tmp_path: Path) -> Generate:
    """The configs of the kernels that `generate` would write."""

    def configs(op: str, gpu: str, *options: str) -> list[Any]:
        where = ("--output-dir", str(tmp_path), "--gpu-target", gpu)
        names = run_json("generate", op, *where, *options, "--dry-run")["kernels"]
        return [parse_kernel(name).config for name in names]

    return configs


def select_one(run_json: RunJson, gpu: str, problem: str, *options: str) -> Any:
    """The config of the kernel that `select` chooses."""
    (stage,) = run_json("select", "gemm", "--gpu-target", gpu, *options, "--problem", problem)["stages"]
    return parse_kernel(stage["choices"][0]["kernel"]).config


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_type(datatype: str, generate: Generate, run_json: RunJson) -> None:
    assert {config.dtype_a for config in generate("gemm", "gfx942", "--datatype", datatype)} == {datatype}
    options = ("--datatype", datatype, "--layout", "rcr", "--variants", "standard")
    assert select_one(run_json, "gfx942", SIZES, *options).dtype_a == datatype


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("datatype", ["fp16", "bf16", "fp32"])
def test_every_layout(layout: str, datatype: str, generate: Generate, run_json: RunJson) -> None:
    options = ("--layout", layout, "--datatype", datatype)
    assert {config.layout for config in generate("gemm", "gfx942", *options)} == {layout}
    chosen = select_one(run_json, "gfx942", SIZES, *options, "--variants", "standard")
    assert (chosen.layout, chosen.dtype_a) == (layout, datatype)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("name", ["int8_rcr_essential", "fp8_rcr_essential"])
def test_other_layouts_of_8_bits(layout: str, name: str, generate: Generate, run_json: RunJson) -> None:
    """Sets of 8-bit types have one layout; -s changes it."""
    options = ("--preselected", name, "-s", f"layout={layout}")
    assert {config.layout for config in generate("gemm", "gfx942", *options)} == {layout}
    assert select_one(run_json, "gfx942", SIZES, *options).layout == layout


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant(variant: str, generate: Generate) -> None:
    assert {config.variant for config in generate("gemm", "gfx942", "--variants", variant)} == {variant}
    found = generate("gemm", "gfx942", "--datatype", "fp16", "--layout", "rcr", "--variants", *VARIANTS)
    assert {config.variant for config in found} == set(VARIANTS)


@pytest.mark.parametrize("operation", ELEMENTWISE)
def test_every_operation(operation: str, generate: Generate, run_json: RunJson) -> None:
    options = ("--variants", "multi_d", "--elementwise", operation)
    assert {config.elementwise for config in generate("gemm", "gfx942", *options)} == {operation}
    chosen = select_one(run_json, "gfx942", f"{SIZES},num_d=1", *options)
    assert (chosen.elementwise, chosen.num_d) == (operation, 1)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu(gpu: str, generate: Generate, run_json: RunJson) -> None:
    for name in (gpu, gpu.upper(), f"{gpu}:sramecc+:xnack-"):
        assert generate("gemm", name, "--limit", "1")
    for datatype in ("fp16", "bf16", *(["fp32"] if gpu in CDNA else [])):
        layouts = LAYOUTS[:1] if (datatype, gpu) == ("fp32", "gfx950") else LAYOUTS
        for layout in layouts:
            options = ("--datatype", datatype, "--layout", layout, "--variants", "standard")
            assert {config.layout for config in generate("gemm", gpu, *options)} == {layout}
    options = ("--datatype", "fp16", "--layout", "ccr", "--variants", "standard")
    assert select_one(run_json, gpu, SIZES, *options).layout == "ccr"


def test_several_gpus_at_once(run_json: RunJson, tmp_path: Path) -> None:
    where = ("--out", str(tmp_path), "--gpu", "gfx942,gfx950", "--preselected", "fp16_rcr_essential")
    written = run_json("generate", "gemm", *where)
    archs = [parse_kernel(name).arch for name in written["kernels"]]
    assert {arch: archs.count(arch) for arch in archs} == {"gfx942": 10, "gfx950": 10}
    assert len(list(tmp_path.glob("gemm-*.hpp"))) == 20


@pytest.mark.parametrize("name", SETS)
def test_every_set(name: str, generate: Generate) -> None:
    assert generate("gemm", "gfx942", "--preselected", name)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("datatype", ["fp16", "bf16", "fp32"])
def test_every_convolution(direction: str, ndim: int, datatype: str, generate: Generate) -> None:
    options = ("--variant", direction, "--ndim-spatial", str(ndim), "--datatype", datatype, "--limit", "3")
    for gpu in ("gfx908", "gfx942") if (datatype, ndim) == ("fp16", 2) else ("gfx942",):
        found = generate("grouped_conv", gpu, *options)
        assert {(config.direction, config.ndim, config.dtype_a) for config in found} == {(direction, ndim, datatype)}


def list_receipts() -> list[object]:
    """All receipts; CI has the last one of each profile."""
    last = {profile: receipt for receipt, profile in RECEIPTS.items()}
    return [
        pytest.param(receipt, profile, marks=[] if last[profile] == receipt else [pytest.mark.deep])
        for receipt, profile in RECEIPTS.items()
    ]


@pytest.mark.parametrize(("receipt", "profile"), list_receipts())
def test_every_receipt_is_a_profile(
    receipt: str, profile: str, run: Callable[..., Any], run_json: RunJson, tmp_path: Path
) -> None:
    """By name or number, a profile has a number of kernels that can be built."""
    command = ("generate", "fmha", "--out", str(tmp_path), "--gpu", "gfx942", "--dry-run")
    by_name = run_json(*command, "--profile", profile)
    assert by_name["sets"] == ["profiles"]
    assert 20 < len(by_name["kernels"]) < MOST_OF_A_PROFILE
    by_number = run(*command, "--profile", receipt)
    assert by_number.stdout.split() == by_name["kernels"]
    assert f"note: receipt {receipt} is the profile {profile}" in by_number.stderr


@pytest.mark.parametrize(
    "gpu", [*(pytest.param(gpu, marks=pytest.mark.deep) for gpu in ("gfx90a", "gfx942")), "gfx950", "gfx1201"]
)
def test_profiles_on_every_gpu(gpu: str, generate: Generate) -> None:
    for profile in ("ck_default", "flash", "pytorch", "aiter"):
        families = {config.family for config in generate("fmha", gpu, "--profile", profile)}
        assert "forward" in families
        assert ("dq_dk_dv" in families) == (gpu != "gfx1201")
