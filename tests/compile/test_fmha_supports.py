"""The fit rules of attention and `supports` of the built kernels give the same answer.

Kernels of each family are asked through their C interface about many problems: in CI kernels of its list, in the deep
tier others, with other features, of which only the host side is compiled.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from built_kernels import built, tiered
from tests.proof.host_library import TW_BAD_ARGS, TW_OK, TW_UNSUPPORTED, build_host_library, call_supports, call_text
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.building.compile_job import LIBRARY
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.fmha.call import CALL
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.problem import MASKS, Problem
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import find_violations

pytestmark = pytest.mark.compile

FMHA = find_op("fmha")
ARCH = "gfx942"
_TILE = {"block": (64, 64, 32, 64, 32, 64), "waves": (4, 1, 1, 4, 1, 1), "mma": (16, 16, 16, 16, 16, 16)}
_NO_GEMM: dict[str, Any] = {"waves": (), "mma": (), "pad_q": False, "pad_k": False}
KERNELS: dict[str, dict[str, Any]] = {
    "forward": {**_TILE, "pad_k": False, "mask_form": "causal", "lse": True, "dropout": True},
    "forward-async": {
        **{**_TILE, "pipeline": "qr_async", "mode": "group", "pad_hdim_q": 8, "pad_hdim_v": 8},
        **{"mask_form": "any", "sink": 4, "bias": "alibi"},
    },
    "pagedkv": {**_TILE, "family": "pagedkv", "pipeline": "qr_pagedkv", "paged": True, "soft_cap": True},
    "splitkv": {**_TILE, "family": "splitkv", "uneven_splits": True, "merge_heads": True},
    "splitkv-even": {**_TILE, "family": "splitkv", "paged": True},
    "combine": {
        **_NO_GEMM,
        **{"family": "combine", "pipeline": "combine", "block": (32, 64), "log_max_splits": 3, "lse": True},
    },
    "appendkv": {
        **{**_NO_GEMM, "family": "appendkv", "pipeline": "appendkv", "block": (64, 64, 64, 64)},
        **{"rotary": "half", "paged": True, "pad_k": True},
    },
    "batch_prefill": {
        **{**_TILE, "family": "batch_prefill", "pipeline": "qr_async", "paged": True, "mode": "group"},
        **{"pad_hdim_q": 8, "pad_hdim_v": 8, "lse": True},
    },
    "dot_do_o": {**_NO_GEMM, "family": "dot_do_o", "pipeline": "dot_do_o", "block": (64, 64)},
    "dq_dk_dv": {
        **{**_NO_GEMM, "family": "dq_dk_dv", "pipeline": "kr_ktr_vr", "block": (16, 64, 64, 16, 64, 16, 32, 64, 64)},
        **{"waves": (1, 4, 1, 4, 1, 1, 1, 4, 1), "mma": (16, 16, 32, 16, 16, 16, 16, 16, 32)},
        **{"bias": "elementwise", "bias_gradient": True, "deterministic": True, "pad_hdim_q": 8},
    },
    "convert_dq": {
        **{**_NO_GEMM, "family": "convert_dq", "pipeline": "convert_dq", "block": (256, 64, 64, 64)},
        **{"deterministic": True},
    },
}
# Of each family, kernels of CI's list; the others are `deep`.
BUILT = (
    "fmha-gfx942-forward-batch-fp16-qr-b64x64x16x32x16x32-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-lse-drop"
    "-2cfc15b026f3",
    "fmha-gfx942-forward-group-fp16-qr-b64x64x32x64x32x64-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-mask_any-lse"
    "-e1d7a3060ba6",
    "fmha-gfx942-pagedkv-batch-fp8fp16-qr_pagedkv-b64x64x32x64x32x64-w2x1x1x2x1x1-mma32x32x32x32x32x32-padk"
    "-30e9961a8c78",
    "fmha-gfx942-splitkv-batch-fp16-qr-b64x64x32x64x32x64-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-paged-uneven"
    "-e6ae3547255d",
    "fmha-gfx942-combine-batch-fp16-combine-b32x64-padq-lse-splits3-7b13d595301b",
    "fmha-gfx942-appendkv-batch-fp16-appendkv-b64x64x64x64-padq-padk-paged-rope_half-1630b0d49330",
    "fmha-gfx942-batch_prefill-group-fp16-qr_async-b64x64x32x64x32x64-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk"
    "-padhq8-padhv8-mask_causal-paged-a2e806b803ab",
    "fmha-gfx942-dot_do_o-group-fp8bf16-dot_do_o-b64x96-padq-9effbd41c9d5",
    "fmha-gfx942-dq_dk_dv-batch-fp16-kr_ktr_vr_iglp-b16x64x64x16x64x16x32x64x64-w1x4x1x4x1x1x1x4x1"
    "-mma16x16x32x16x16x16x16x16x32-padhq8-padhv8-5e85686d0453",
    "fmha-gfx942-dq_dk_dv-batch-fp16-kr_ktr_vr_iglp-b16x64x64x16x64x16x32x64x64-w1x4x1x4x1x1x1x4x1"
    "-mma16x16x32x16x16x16x16x16x32-padhq8-padhv8-det-7c8d8395fee1",
    "fmha-gfx942-convert_dq-group-fp16-convert_dq-b256x64x64x32-padq-det-o2-1589176ce287",
    "fmha-gfx942-convert_dq-group-fp16-convert_dq-b128x32x64x128-padq-padhq1-det-83873244132f",
)
FEATURES = ("bias", "lse", "sink", "bias_gradient", "deterministic", "static_quant", "rotary", "store_randval")


def lengths(tile: int) -> st.SearchStrategy[int]:
    """Whole tiles, nearly whole ones, and any."""
    return st.one_of(
        st.sampled_from([tile, 2 * tile, 3 * tile]), st.sampled_from([tile - 1, tile + 1]), st.integers(1, 300)
    )


def mostly(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The kernel's own value, or rarely another."""
    return st.sampled_from([value] * 12 + list(others))


@st.composite
def problems(draw: st.DrawFn, config: Any) -> Problem:
    """Problems of a kernel's family and type: some that it computes, some that miss by little."""
    tile, used = config.tile, find_kind(config).fields
    hdim_q, hdim_v = config.hdim_q or config.hdim_v, config.hdim_v or config.hdim_q
    mask = draw(mostly("none" if config.mask_form == "none" else "bottom_right", *MASKS))
    window = {} if mask == "none" else {
        "window_left": draw(mostly(-1, 5, 2**29, 2**30)), "window_right": draw(st.sampled_from([0, 3, -1]))
    }  # fmt: skip
    group = config.mode == "group"
    values: dict[str, Any] = {
        "batch": draw(st.integers(1, 3)),
        "seqlen_q": draw(lengths(tile.get("m0", 64))),
        "seqlen_k": draw(lengths(tile.get("n0", 64))),
        "heads": draw(st.sampled_from([2, 4, 2**12, 2**25])),
        "kv_heads": draw(st.sampled_from([1, 2])),
        "hdim_q": draw(mostly(hdim_q, hdim_q - 8, hdim_q - 1, hdim_q + 8)),
        "hdim_v": draw(mostly(hdim_v, hdim_v - 8, hdim_v - 1, hdim_v + 8)),
        "layout": draw(st.sampled_from(["bshd", "bhsd"])),
        "mask": mask,
        "p_drop": draw(mostly(0.25 if config.dropout else 0.0, 0.0, 0.5)),
        "logits_cap": draw(mostly(8.0 if config.soft_cap else 0.0, 0.0, 9.0)),
        "num_splits": draw(mostly(2 if config.family in ("splitkv", "combine") else 0, 0, 1, 8, 9)),
        "page_size": draw(mostly(_page(config), 0, 1, 64, 96, 128)),
        "min_seqlen_q": draw(mostly(0, 3)),
        "seqlen_new": draw(mostly(70, 0, 64)) if config.family == "appendkv" else 0,
        "dq_parts": draw(mostly(1, 2)),
        **window,
    }
    for name in FEATURES:
        if name in used or (name == "store_randval" and config.dropout):
            own = getattr(config, name)
            values[name] = draw(mostly(own, *_others(own, masked=mask != "none")))
    if values.get("rotary", "none") != "none":
        values["rotary_dim"] = draw(mostly(0, 16, 24, 32))
    if config.deterministic and draw(mostly(True, False)):
        values["dq_parts"] = -(-values["seqlen_k"] // tile["n0"])
    if group:
        values |= {"total_q": values["seqlen_q"], "total_k": values["seqlen_k"]}
    return Problem(family=config.family, mode=config.mode, dtype=config.dtype, v_layout=config.v_layout, **values)


def _others(own: Any, *, masked: bool) -> tuple[Any, ...]:
    """Values of a feature that the kernel does not have."""
    if isinstance(own, bool):
        return (not own,)
    if isinstance(own, str):
        return ("none",)
    return (own + 1,) if masked else ()


def _page(config: Any) -> int:
    if not config.paged:
        return 0
    return 1 if config.family == "batch_prefill" else int(2 * config.tile["n0"])


def test_every_family_has_a_built_kernel() -> None:
    assert {name.split("-")[2] for name in BUILT} == {fields.get("family", "forward") for fields in KERNELS.values()}


@pytest.mark.parametrize("name", tiered(BUILT, lambda name: (parse_kernel(name),)))
def test_python_and_the_built_kernel_agree(name: str) -> None:
    kernel = parse_kernel(name)
    (artifact,) = built([kernel])
    compare(kernel, ctypes.CDLL(str(artifact.verify_file(LIBRARY))), 150)


@pytest.mark.deep
@pytest.mark.parametrize("name", KERNELS)
def test_python_and_the_host_side_of_a_kernel_agree(name: str, tmp_path: Path) -> None:
    config: Any = FMHA.make_example(KERNELS[name])
    assert find_violations(FMHA.rules, config, archs.load(ARCH)) == []
    kernel = FMHA.make_kernel(config, ARCH)
    compare(kernel, build_host_library(kernel, find_toolchain(), tmp_path), 5000)


def compare(kernel: Kernel, library: ctypes.CDLL, problem_count: int) -> None:
    """Ask the fit rules and a kernel about problems."""
    config: Any = kernel.config
    answers: dict[str, int] = {}

    @given(st.data())
    @settings(max_examples=problem_count, database=None, derandomize=True, deadline=None)
    def agree(data: st.DataObject) -> None:
        try:
            problem = data.draw(problems(config))
        except InvalidValueError:
            return
        found = tw.fits(config, problem, ARCH)
        status = call_supports(library, kernel, CALL.make_arguments(problem))
        assert status in (TW_OK, TW_UNSUPPORTED), call_text(library, kernel, "message")
        assert (status == TW_OK) == (not found), (problem, found, call_text(library, kernel, "message"))
        for code in {violation.code for violation in found} or {"fits"}:
            answers[code] = answers.get(code, 0) + 1

    agree()
    assert answers["fits"] > problem_count / 200
    assert len(answers) > 2
    tried = FMHA.execution.trials(config, archs.load(ARCH)) if FMHA.execution else ()
    assert tried
    for problem in tried:
        assert call_supports(library, kernel, CALL.make_arguments(problem)) == TW_OK, problem
    assert call_text(library, kernel, "name") == kernel.slug
    assert call_supports(library, kernel, CALL.type(size=8)) == TW_BAD_ARGS
