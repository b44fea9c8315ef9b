"""Which kernels are chosen, in which order, and what is said of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import tilewright as tw
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, UnsupportedError
from tilewright.dispatch.plan import build_stage
from tilewright.ops.kernel import Kernel
from tilewright.select.select import select_kernels
from tilewright.select.selection import FIRST_FIT, Candidate, Ranking

GFX942 = tw.load("gfx942")


def kernel(arch: str = "gfx942", **fields: Any) -> Kernel:
    values: dict[str, Any] = {
        "variant": "standard",
        "dtype": "fp16",
        "layout": "rcr",
        "block": (128, 128, 32),
        "waves": (2, 2, 1),
        "mma": (32, 32, 16),
        "pipeline": "compv3",
        "scheduler": "intrawave",
        "epilogue": "cshuffle",
        **fields,
    }
    return tw.kernel_of(tw.gemm.config(**values), arch)


LARGE, SMALL, PADDING = kernel(), kernel(block=(64, 64, 32)), kernel(pad_m=True, pad_n=True, pad_k=True)
BF16 = kernel(dtype="bf16")


def problem(m: int, n: int, k: int, **fields: Any) -> Any:
    return tw.gemm.Problem(m=m, n=n, k=k, **{"dtype": "fp16", "layout": "rcr", **fields})


def test_first_fit_follows_priority_then_registration() -> None:
    square = problem(256, 256, 64)
    kernels = [LARGE, SMALL, PADDING]

    assert [c.kernel for c in select_kernels(square, GFX942, kernels)] == kernels
    assert [c.kernel for c in select_kernels(square, GFX942, kernels[::-1])] == kernels[::-1]
    ranked = select_kernels(square, GFX942, kernels, {PADDING: 2, SMALL: -1}).choices
    assert [c.kernel for c in ranked] == [PADDING, LARGE, SMALL]
    assert [c.score for c in ranked] == [2.0, 0.0, -1.0]
    assert ranked[0].why == "priority 2, supports the problem unpadded"


def test_what_cannot_is_rejected_with_every_reason() -> None:
    selection = select_kernels(problem(256, 192, 64), GFX942, [LARGE, SMALL, BF16])

    assert [c.kernel for c in selection] == [SMALL]
    assert [r.kernel for r in selection.rejected] == [LARGE, BF16], "what padding would help is nearest"
    assert "N = 192 is not a multiple of block n = 128" in selection.rejected[0].reasons[0]
    assert any("the kernel has dtype_a bf16, the problem fp16" in reason for reason in selection.rejected[1].reasons)
    assert [r.padding_helps for r in selection.rejected] == [True, False]
    assert str(selection).splitlines()[0].endswith("on gfx942: 1 supported, 2 rejected")


def test_nothing_fits_names_the_nearest_and_padding_only_where_it_helps() -> None:
    odd = problem(200, 200, 72)
    with pytest.raises(UnsupportedError) as raised:
        _ = select_kernels(odd, GFX942, [LARGE, SMALL, BF16, kernel(dtype="bf16", block=(64, 64, 32))]).best
    said = str(raised.value)
    assert said.startswith("none of 4 kernels for gfx942 supports Problem(m=200")
    assert "pad=True" in said and "N = 200 is not a multiple" in said and "… and 1 more" in said
    with pytest.raises(UnsupportedError) as raised:
        _ = select_kernels(odd, GFX942, [BF16]).best
    assert "pad=True" not in str(raised.value)


def test_padding_comes_after_what_fits_and_says_so() -> None:
    odd = problem(200, 200, 72)
    plain = select_kernels(odd, GFX942, [LARGE, PADDING], {LARGE: 9})
    assert [c.kernel for c in plain] == [PADDING]
    padded = select_kernels(odd, GFX942, [LARGE, PADDING], {LARGE: 9}, pad=True)
    assert [c.kernel for c in padded] == [PADDING, LARGE]
    last = padded.choices[-1]
    assert last.padded is not None and tw.fits(LARGE.config, last.padded, "gfx942") == []
    stage = build_stage(last, odd, 0)
    assert stage.problem == last.padded and stage.padding is not None
    larger = last.padded
    assert f"b padded from 72×200 to {larger.k}×{larger.n} with zeros" in stage.describe()
    assert f"c cut from {larger.m}×{larger.n} to 200×200" in stage.describe()


def test_a_preparation_that_cannot_be_made_is_a_reason() -> None:
    shuffled = kernel(variant="preshuffle", pipeline="preshufflev2", scheduler="default", block=(128, 128, 64))
    assert tw.explain(shuffled.config, "gfx942")
    strided = problem(128, 128, 128, stride_b=256)
    [rejection] = select_kernels(strided, GFX942, [shuffled]).rejected
    assert "no gaps" in rejection.reasons[0]
    [choice] = select_kernels(replace(strided, stride_b=128), GFX942, [shuffled]).choices
    assert (
        "b is reordered"
        in build_stage(choice, strided.__class__(m=128, n=128, k=128, dtype="fp16", layout="rcr"), 0).describe()
    )


def test_a_selector_plugs_in() -> None:
    @dataclass(frozen=True)
    class SmallestBlock:
        def rank(self, problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:
            scored = [replace(c, score=-float(c.kernel.config.block.m), why="small") for c in candidates]  # type: ignore[attr-defined]
            return Ranking(sorted(scored, key=lambda choice: -choice.score))

    selection = select_kernels(problem(256, 256, 64), GFX942, [LARGE, SMALL], selector=SmallestBlock())
    assert [(c.kernel, c.why) for c in selection] == [(SMALL, "small"), (LARGE, "small")]
    registry = replace(tw.Registry.of([LARGE, SMALL]), selector=SmallestBlock())
    assert registry.select(problem(256, 256, 64), "gfx942", built=False).best.kernel == SMALL


def test_a_registry_selects_for_a_gpu() -> None:
    other = kernel("gfx90a")
    registry = replace(tw.Registry.of([LARGE, SMALL, other]), selector=FIRST_FIT)
    square = problem(256, 256, 64)

    assert registry.select(square, "gfx90a", built=False).best.kernel == other
    assert registry.select(square, tw.load("gfx90a"), built=False).best.kernel == other
    assert registry.select(square, "emulated:gfx942", built=False).best.kernel == LARGE
    assert registry.with_priority(SMALL, 1).select(square, "gfx942", built=False).best.kernel == SMALL
    assert registry.select(square, "gfx942", kernel=SMALL.slug, built=False).best.kernel == SMALL
    with pytest.raises(UnsupportedError, match="no kernel for gfx950; it has kernels for gfx90a, gfx942"):
        registry.select(square, "gfx950")
    with pytest.raises(InvalidValueError, match="pass device="):
        registry.select(square)
    assert tw.Registry.of([LARGE]).select(square, built=False).best.kernel == LARGE
    with pytest.raises(UnsupportedError, match=r"not built: call build\(\)"):
        _ = registry.select(square, "gfx942").best
    with pytest.raises(UnsupportedError, match="a kernel of gemm, and the problem is a str"):
        _ = registry.select("512", "gfx942", built=False).best


def test_kernels_of_other_ops_are_named_last() -> None:
    norm = tw.kernel_of(tw.norm.OP.make_example(), "gfx942")
    found = select_kernels(problem(256, 256, 64), GFX942, [norm, BF16])
    assert [rejection.kernel for rejection in found.rejected] == [BF16, norm]
    assert found.rejected[1].reasons == ("it is a kernel of norm, and the problem is one of gemm",)
