"""Golden sources for later generations of CK Tile: some kernels of each op whose sources differ there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tilewright.arch.ck_api import DEFAULT_API, CkApi, make_generation_api
from tilewright.codegen.render import CK_API_HEADER, render
from tilewright.ops import OPS, find_op
from tilewright.ops.fmha.rules.examples import PREFILL
from tilewright.ops.gemm.kinds import preshuffle
from tilewright.ops.kernel import Kernel

FOLDER = Path(__file__).parent
NEWER = "2026-06"
# By op and name: the GPU, and what changes in the op's example.
KERNELS: Mapping[str, Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "gemm": {
        "standard-compv3": ("gfx942", {}),
        "standard-comp_async": ("gfx950", {"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64)}),
        "standard-default-split_k": ("gfx942", {"epilogue": "default", "dtype_c": "fp32", "split_k": True}),
        "batched-compv4-split_k": (
            "gfx942",
            {"variant": "batched", "pipeline": "compv4", "vector": (8, 8, 8), "split_k": True},
        ),
        "preshuffle-permute_n": ("gfx942", {**preshuffle.EXAMPLE, "permute_n": True}),
    },
    "grouped_conv": {
        "forward-compv3": ("gfx942", {}),
        "forward-comp_async": (
            "gfx950",
            {"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64), "vector": (8, 8, 1)},
        ),
        "backward_data-compv4": ("gfx942", {"direction": "backward_data", "pipeline": "compv4", "vector": (8, 8, 8)}),
        "backward_weight-two_stage": (
            "gfx942",
            {"direction": "backward_weight", "vector": (8, 8, 4), "split_k": True, "two_stage": True},
        ),
        "forward-eight_waves": ("gfx942", {"waves": (4, 2, 1), "mma": (16, 16, 32)}),
        "forward-gemm": (
            "gfx942",
            {"specialization": "filter1x1_stride1_pad0", "explicit_gemm": True, "vector": (8, 8, 8)},
        ),
    },
    "fmha": {
        "batch_prefill-vectorised": (
            "gfx942",
            {**PREFILL, "mode": "group", "page_size": 64, "kv_layout": "vectorised", "page_lookup": "table"},
        ),
    },
    "gemm_quant": {
        **{
            f"{quant}-compv3": ("gfx942", {"quant": quant, "block": (64, 128, 128), "mma": (16, 16, 32)})
            for quant in ("b128x128", "a1x128", "a1x128_b128x128")
        },
    },
    "grouped_gemm": {"scaled": ("gfx942", {"dtype_a": "fp8", "dtype_b": "fp8", "block": (128, 128, 64)})},
}
GOLDEN = {
    FOLDER / name / NEWER / f"{form}.golden": find_op(name).make_kernel(find_op(name).make_example(changes), arch)
    for name, forms in KERNELS.items()
    for form, (arch, changes) in forms.items()
}


def make_api(kernel: Kernel) -> CkApi:
    return make_generation_api(NEWER, find_op(kernel.op).ck_probes)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    text = render(GOLDEN[path], make_api(GOLDEN[path])).text
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    assert path.read_text() == text


def test_no_golden_file_is_left_over() -> None:
    assert set(FOLDER.glob("*/*/*.golden")) == set(GOLDEN)


@pytest.mark.parametrize("op", [op for op in OPS if op.name in KERNELS], ids=lambda op: op.name)
def test_the_macros_of_a_generation_are_in_the_generated_header(op: Any) -> None:
    kernel = next(kernel for kernel in GOLDEN.values() if kernel.op == op.name)
    newer = make_api(kernel)
    earlier = op.make_kernel(op.make_example(), "gfx942")
    for api, each in ((newer, kernel), (DEFAULT_API, earlier)):
        macros = render(each, api).files[CK_API_HEADER]
        for probe, form in api.list_forms(op.ck_probes).items():
            assert f"#define TILEWRIGHT_CK_{probe}_{form} 1".upper() in macros.upper()


def test_a_gemm_of_2026_has_one_instance_for_all_loops_and_stores() -> None:
    texts = [render(kernel, make_api(kernel)).text for kernel in GOLDEN.values() if kernel.op == "gemm"]
    for text in texts:
        assert "using Instance = " in text
        assert "HasHotLoop" not in text
    for adapter in ("ThreeSteps<", "StoreOrAdd<", "StoreOnly<", "PermuteNEpilogue<"):
        assert any(adapter in text for text in texts), adapter


def test_a_convolution_of_2026_has_one_instance_for_all_loops_and_stores() -> None:
    for kernel in (kernel for kernel in GOLDEN.values() if kernel.op == "grouped_conv"):
        text = render(kernel, make_api(kernel)).text
        assert "template <bool, ck_tile::TailNumber, ck_tile::memory_operation_enum>" in text
        assert "HasHotLoop" not in text
    texts = [render(kernel, make_api(kernel)).text for kernel in GOLDEN.values()]
    for adapter in ("OfTuples<tilewright_block_gemm::ThreeSteps<", "EightWaves<", "StoreOnly<", "WithoutFunction<"):
        assert any(adapter in text for text in texts), adapter
