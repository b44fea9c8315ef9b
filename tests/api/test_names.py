"""Names and spellings that a Python program passes: sets, products, types of other libraries, devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.arch.dtype_names import SPELLINGS, read_dtype_name
from tilewright.arch.dtypes import DTYPES
from tilewright.base.errors import InvalidValueError, UnknownValueError, UnsupportedError
from tilewright.ops import parse_kernel
from tilewright.runtime.device import read_device

SET = "fp16_rcr_essential"


def gemm(**fields: Any) -> Any:
    return tw.gemm.Problem(**{"m": 64, "n": 64, "k": 64, "dtype": "fp16", "layout": "rcr", **fields})


def test_kernels_are_named_by_set_kernel_digest_and_file(tmp_path) -> None:
    listed = tuple(tw.sets()[SET].kernels("gfx942"))
    file = tmp_path / "mine.toml"
    file.write_text(
        'op = "gemm"\narchs = ["gfx942"]\n[[space]]\nvariant = "standard"\ndtype = "fp16"\nlayout = "rcr"\n'
        'block = "64x64x32"\nwaves = "2x2x1"\nmma = "16x16x16"\npipeline = "compv3"\nscheduler = "intrawave"\n'
        'epilogue = "cshuffle"\n',
        encoding="utf-8",
    )

    assert tw.Registry.of(SET, "gfx942").kernels == listed
    assert tw.Registry.of([listed[0].slug, listed[1].digest]).kernels == listed[:2]
    assert len(tw.Registry.of(str(file), "gfx942")) == 1
    assert tw.Registry.of([SET, str(file)], "gfx942").kernels[:10] == listed


def test_an_op_is_not_kernels() -> None:
    with pytest.raises(InvalidValueError, match=r"gemm is an op, not kernels\. Name one of its sets \(bf16_lay"):
        tw.Registry.of("gemm", "gfx942")
    with pytest.raises(UnknownValueError, match=f"Did you mean '{SET}'"):
        tw.Registry.of("fp16_rcr_esential", "gfx942")


def test_product_names_are_those_of_the_gpu() -> None:
    assert tw.load("MI300X") is tw.load("gfx942")
    of_set = tw.Registry.of(SET, "Instinct MI300X")
    assert {kernel.arch for kernel in of_set} == {"gfx942"}
    assert of_set.kernels == tw.Registry.of(SET, "gfx942").kernels
    assert len(of_set.find(arch="mi300x")) == len(of_set)
    assert tw.kernel_of(of_set.kernels[0].config, "MI300X") == of_set.kernels[0]
    assert of_set.select(gemm(m=512), "MI300X", built=False).arch == "gfx942"
    space = tw.gemm.OP.spaces()
    report = next(iter(space.values())).spaces[0]
    assert report.report("MI300X").arch == "gfx942"


def test_a_kernel_has_the_name_of_its_gpu() -> None:
    kernel = tw.Registry.of(SET, "gfx942").kernels[0]
    with pytest.raises(InvalidValueError, match="must be named gfx942, got MI300X"):
        tw.render(tw.gemm.OP.make_kernel(kernel.config, "MI300X"))


def torch_types() -> list[tuple[Any, str]]:
    torch = pytest.importorskip("torch")
    return [(torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float32, "fp32"), (torch.int8, "int8")]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("half", "fp16"),
        ("float16", "fp16"),
        ("bfloat16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("float32", "fp32"),
        ("float8_e4m3fn", "fp8"),
        ("float8_e5m2fnuz", "bf8"),
        (np.float16, "fp16"),
        (np.dtype("float32"), "fp32"),
        (np.int8, "int8"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.dtype(ml_dtypes.bfloat16), "bf16"),
        (ml_dtypes.float8_e4m3fnuz, "fp8"),
        ("fp16", "fp16"),
    ],
)
def test_types_of_other_libraries(value: Any, name: str) -> None:
    assert read_dtype_name(value) == name
    assert gemm(dtype=value) == gemm(dtype=name)
    assert gemm(dtype=None, dtype_a=value, dtype_b=value, dtype_c=value).dtype_a == name
    assert tw.gemm.space(dtype=value, layout="rcr") == tw.gemm.space(dtype=name, layout="rcr")


def test_types_of_torch() -> None:
    for value, name in torch_types():
        assert gemm(dtype=value) == gemm(dtype=name)
    torch = pytest.importorskip("torch")
    assert tw.fmha.Problem(family="forward", dtype=torch.bfloat16, seqlen_q=64, hdim_q=64).dtype == "bf16"
    assert tw.fmha.space(dtype=torch.float16).declared["dtype"] == ("fp16",)


@pytest.mark.parametrize("value", ["float", "fp61", 16, object, np.complex64, np.array(1.0)])
def test_other_types_are_unknown(value: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"unknown dtype|no matrix instruction"):
        gemm(dtype=value)


def test_every_spelling_is_a_type() -> None:
    assert set(SPELLINGS.values()) <= set(DTYPES)


def test_pairs_of_types_in_any_spelling() -> None:
    assert gemm(dtype="float8_e4m3fn*float8_e5m2") == gemm(dtype="fp8*bf8")


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.uint64])
def test_sizes_of_numpy(kind: Callable[[int], Any]) -> None:
    problem = gemm(m=kind(100), k_batch=kind(2))
    assert problem == gemm(m=100, k_batch=2)
    assert type(problem.m) is int
    conv = tw.grouped_conv.OP.example_problem
    scaled = {name: kind(value) if type(value) is int else value for name, value in conv.items()}
    assert tw.grouped_conv.Problem(**scaled) == tw.grouped_conv.Problem(**conv)
    assert tw.gemm.space(block=[(kind(64), kind(64), kind(32))]) == tw.gemm.space(block=[(64, 64, 32)])
    assert tw.gemm.space(block=(kind(64), kind(64), kind(32))) == tw.gemm.space(block=(64, 64, 32))


@pytest.mark.parametrize("value", [np.float64(64), np.bool_(True), True, np.array([64, 64]), "64", None])
def test_other_sizes_are_not_integers(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="m must be an integer"):
        gemm(m=value)


def attention(**fields: Any) -> Any:
    return tw.fmha.Problem(**{"family": "forward", "dtype": "fp16", "seqlen_q": 64, "hdim_q": 64, **fields})


def test_a_causal_mask_where_both_corners_are_the_same() -> None:
    assert attention(mask="causal") == attention(mask="top_left")
    assert attention(mask="causal", seqlen_k=64).mask == "top_left"


@pytest.mark.parametrize("fields", [{"seqlen_k": 128}, {"mode": "group", "total_q": 64, "total_k": 64}])
def test_a_causal_mask_of_other_lengths_has_two_meanings(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=r"'top_left' .*torch's.* or 'bottom_right' .*FlashAttention's"):
        attention(mask="causal", **fields)


def test_devices_of_torch() -> None:
    torch = pytest.importorskip("torch")
    registry = tw.Registry.of(SET, "gfx942")
    with pytest.raises(InvalidValueError, match=r"cannot run on device\(type='cpu'\)\. Pass device= a GPU, gpu:0, or"):
        registry.run(gemm(), np.zeros((64, 64)), np.zeros((64, 64)), device=torch.device("cpu"))
    with pytest.raises(InvalidValueError, match="cannot run on"):
        registry.select(gemm(), torch.device("cpu"))
    with pytest.raises(InvalidValueError, match="cannot run on"):
        registry.plan(gemm(), torch.device("cpu"))
    with pytest.raises(InvalidValueError, match="has no index"):
        read_device(torch.device("cuda"))
    assert read_device(torch.device("cuda:1")) == tw.Device("gpu:1")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("cuda", "named gpu:0"),
        ("cuda:2", "named gpu:2"),
        ("gpu", "Did you mean 'gpu:0'.*named gpu:0"),
        ("gpu0", "named gpu:0"),
        ("0", "named gpu:0"),
        ("cpu", "an emulated device executes them"),
        ("emulated", "Did you mean 'emulated:gfx9"),
    ],
)
def test_advice_for_names_of_devices(name: str, advice: str) -> None:
    with pytest.raises(UnknownValueError, match=advice):
        tw.Device(name)


@pytest.mark.parametrize("value", [0, None, SimpleNamespace(), 3.5])
def test_other_values_are_not_devices(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="is not a device"):
        read_device(value)


def test_sets_by_op_and_gpu() -> None:
    everything = tw.sets()
    assert set(tw.sets("gemm", "MI300X")) < set(tw.sets("gemm")) < set(everything)
    assert everything[SET] is tw.gemm.OP.sets()[SET]
    assert "fp16_rcr_essential" in repr(tw.sets("gemm")) and len(repr(everything).splitlines()) <= 23
    assert "<td>fp16_rcr_essential</td>" in tw.sets("gemm")._repr_html_()


def test_kernels_by_fields() -> None:
    found = tw.kernels("gemm", "MI300X", dtype="half", pipeline=["mem", "compv3"])
    assert {(kernel.config.dtype_a, kernel.arch) for kernel in found} == {("fp16", "gfx942")}
    assert {kernel.config.pipeline for kernel in found} == {"mem", "compv3"}
    with pytest.raises(UnknownValueError, match="field of gemm 'piepline'"):
        tw.kernels("gemm", "gfx942", piepline="mem")
    with pytest.raises(UnsupportedError, match=r"none of the \d+ kernels in the sets of gemm for gfx942 has block"):
        tw.kernels("gemm", "gfx942", block=(8, 8, 8))


def test_selecting_among_the_built_in_kernels() -> None:
    problem = gemm(m=4096, n=4096, k=4096)
    found = tw.select_kernel(problem, "MI300X")
    every = tw.kernels("gemm", "gfx942").select(problem, "gfx942", built=False)
    assert found.best.kernel == every.best.kernel == parse_kernel(found.best.kernel.slug)
    assert tw.select_kernel(problem, "emulated:gfx950").arch == "gfx950"
    with tw.Device("emulated:gfx950"):
        assert tw.select_kernel(problem).arch == "gfx950"
    with pytest.raises(InvalidValueError, match=r"Create one of tilewright\.gemm\.Problem"):
        tw.select_kernel({"m": 3}, "gfx942")
    with pytest.raises(UnsupportedError, match=r"fmha has no preselected set for gfx1100"):
        tw.select_kernel(attention(), "gfx1100").best  # noqa: B018


def test_errors_are_reachable() -> None:
    assert issubclass(tw.errors.CompileError, tw.TilewrightError)
    with pytest.raises(tw.TilewrightError):
        tw.load("gfx9999")


def test_too_many_kernels_are_counted_and_their_time_is_estimated() -> None:
    space = tw.gemm.space(variant="standard", dtype="fp16", layout="rcr")
    with pytest.raises(InvalidValueError) as raised:
        tw.build(space, "gfx942")
    said = str(raised.value)
    assert f"{space.count('gfx942'):,} kernels would be built, and the limit is 1,000. That takes about " in said
    assert re.search(r"about \d+\.\d h of CPU time\. Set more fields", said)
