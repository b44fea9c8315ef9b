"""The reference of appendkv: rotation against plain loops, and attention over what was appended."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.inputs import make_inputs
from tilewright.ops.fmha.kind import compute_reference
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tolerance import compute_tolerance

GFX942 = archs.load("gfx942")
SIZES = {"batch": 3, "heads": 4, "kv_heads": 2, "seqlen_q": 3, "seqlen_k": 9, "hdim_q": 8, "hdim_v": 4}
CONFIG = Config(family="appendkv", mode="batch", dtype="fp32", pipeline="appendkv", block=(16, 16, 8, 4))


def problem(**values: Any) -> Problem:
    return Problem(**{"family": "appendkv", "dtype": "fp32", "seqlen_new": 4, **SIZES, **values})


def turned(values: Any, angles: Any, rotary: str, size: int) -> list[float]:
    """A head of one token, rotated pair by pair; `angles` are cosines and sines."""
    made = [float(each) for each in values]
    for pair in range(size // 2):
        left, right = (2 * pair, 2 * pair + 1) if rotary == "interleaved" else (pair, pair + size // 2)
        cos, sin = float(angles[0][pair]), float(angles[1][pair])
        made[left] = float(values[left]) * cos - float(values[right]) * sin
        made[right] = float(values[right]) * cos + float(values[left]) * sin
    return made


@pytest.mark.parametrize("rotary", ["interleaved", "half"])
@pytest.mark.parametrize("mask", ["none", "bottom_right"])
@pytest.mark.parametrize("size", [8, 4])
def test_rotation_equals_plain_loops(rotary: str, mask: str, size: int) -> None:
    of = problem(rotary=rotary, rotary_dim=size, mask=mask)
    given = make_inputs(of, 1, GFX942)
    found = compute_reference(of, given, GFX942)
    table = given["rotary_cos"], given["rotary_sin"]
    for b, before in enumerate(given["seqlens_k"].tolist()):
        for i in range(4):
            at = before + i
            expected = turned(given["k_new"][b, i, 1], [each[at] for each in table], rotary, size)
            np.testing.assert_allclose(found["k"][b, at, 1], expected, rtol=1e-12)
        for i in range(3):
            at = before + (i if mask != "none" else 0)
            expected = turned(given["q"][b, i, 3], [each[at] for each in table], rotary, size)
            np.testing.assert_allclose(found["q"][b, i, 3], expected, rtol=1e-12)


def test_angles() -> None:
    given = make_inputs(problem(rotary="half"), 1, GFX942)
    assert given["rotary_cos"][5, 1] == pytest.approx(math.cos(5 * 10000 ** (-1 / 4)), rel=1e-6)


def test_the_rest_stays() -> None:
    of = problem()
    given = make_inputs(of, 1, GFX942)
    found = compute_reference(of, given, GFX942)
    np.testing.assert_array_equal(found["q"], given["q"])
    for b, before in enumerate(given["seqlens_k"].tolist()):
        new = slice(before, before + 4)
        for name in ("k", "v"):
            np.testing.assert_array_equal(found[name][b, new], given[f"{name}_new"][b])
            rest, old = (np.delete(each[name][b], new, axis=0) for each in (found, given))
            np.testing.assert_array_equal(rest, old)


@pytest.mark.parametrize("values", [{}, {"layout": "bhsd"}, {"v_layout": "col"}, {"page_size": 4, "pages": 20}])
def test_appending_then_attention(values: dict[str, Any]) -> None:
    """Attention over the cache sees old and new keys, as over both in one piece."""
    of = problem(**values)
    given = make_inputs(of, 1, GFX942)
    after = {**given, **compute_reference(of, given, GFX942)}
    after["seqlens_k"] = given["seqlens_k"] + 4
    over = replace(of, family="pagedkv", seqlen_new=0, lse=True)
    found = compute_reference(over, after, GFX942)
    before = compute_reference(over, {**given, "q": after["q"]}, GFX942)
    plain_layout = {"layout": of.layout, "v_layout": of.v_layout}
    only_new = Problem(**{"family": "forward", "dtype": "fp32", **SIZES, "seqlen_k": 4, "lse": True, **plain_layout})
    new = compute_reference(only_new, {"q": given["q"], "k": given["k_new"], "v": given["v_new"]}, GFX942)
    # The two pieces are joined as combine joins parts.
    joined = replace(only_new, family="combine", num_splits=2)
    by_head = [each["o"].swapaxes(1, 2) if of.layout == "bshd" else each["o"] for each in (before, new)]
    pieces = {"o_acc": np.stack(by_head), "lse_acc": np.stack([before["lse"], new["lse"]])}
    expected = compute_reference(joined, pieces, GFX942)
    for name in ("o", "lse"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("seed", [0, 1])
def test_tolerance_of_copies_is_zero_and_of_rotations_is_small(seed: int) -> None:
    of = problem(dtype="fp16", rotary="half", rotary_dim=4, page_size=4)
    given = make_inputs(of, seed, GFX942)
    expected = compute_reference(of, given, GFX942)
    allowed = compute_tolerance(CONFIG, of, given, expected, GFX942)
    assert not allowed["v"].limit.any()
    assert not allowed["k"].limit[..., 4:].any()
    stored = {name: expected[name].astype(np.float16).astype(float) for name in ("q", "k")}
    for name, each in stored.items():
        assert np.all(np.abs(each - expected[name]) <= allowed[name].limit)
    # Quarter turns of whole numbers are exact.
    assert (allowed["q"].limit.max() > 0) == (seed == 1)
