"""The reference of forward attention: against plain loops, masks drawn by hand, and properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_attention import attention, sees

from tilewright import arch as archs
from tilewright.ops.fmha.inputs import make_inputs
from tilewright.ops.fmha.kind import compute_reference
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import build_visibility_mask, compute_alibi_distances, split_keys
from tilewright.ops.fmha.stages import plan_next_stage
from tilewright.ops.fmha.tensors import list_tensors

GFX942 = archs.load("gfx942")
SIZES = {"batch": 2, "heads": 4, "kv_heads": 2, "seqlen_q": 5, "seqlen_k": 7, "hdim_q": 8, "hdim_v": 4}
GROUP = {"mode": "group", "batch": 3, "total_q": 9, "total_k": 12}


def problem(family: str = "forward", **values: Any) -> Problem:
    return Problem(**{"family": family, "dtype": "fp32", **SIZES, **values})


def drawn(of: Problem, seed: int = 1) -> dict[str, Any]:
    return make_inputs(of, seed, GFX942)


def plain(of: Problem, given: Any, b: int, h: int) -> tuple[Any, Any]:
    """A head of a sequence in batch mode and bshd, by loops."""

    def seen(row: int, key: int) -> bool:
        return sees(row, key, of.seqlen_q, of.seqlen_k, of.mask, of.window_left, of.window_right, of.sink)

    bias = None
    if of.bias == "elementwise":
        bias = lambda row, key: float(given["bias"][b, h, row, key])  # noqa: E731
    g = h // (of.heads // of.kv_heads)
    q, k, v = given["q"][b, :, h], given["k"][b, :, g], given["v"][b, :, g]
    return attention(q, k, v, of.scale, seen, bias, of.logits_cap)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mask": "top_left"},
        {"mask": "bottom_right"},
        {"mask": "bottom_right", "seqlen_q": 9},  # the first rows see nothing
        {"mask": "top_left", "window_left": 1, "window_right": 2},
        {"mask": "bottom_right", "window_left": 0, "window_right": -1},
        {"mask": "bottom_right", "window_left": 1, "sink": 2},
        {"bias": "elementwise"},
        {"bias": "elementwise", "mask": "top_left"},
        {"logits_cap": 1.5},
        {"scale": 0.7},
    ],
)
def test_equals_plain_loops(values: dict[str, Any]) -> None:
    of = problem(lse=True, **values)
    given = drawn(of)
    found = compute_reference(of, given, GFX942)
    for b in range(of.batch):
        for h in range(of.heads):
            o, lse = plain(of, given, b, h)
            np.testing.assert_allclose(found["o"][b, :, h], o, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(found["lse"][b, h], lse, rtol=1e-12)


def picture(seen: Any) -> list[str]:
    return ["".join("1" if each else "." for each in row) for row in seen]


def mask(kind: str, queries: int, keys: int, left: int = -1, right: int = 0, sink: int = 0) -> list[str]:
    of = problem(mask=kind, window_left=left, window_right=right, sink=sink)
    return picture(build_visibility_mask(of, queries, keys))


def test_masks_drawn_by_hand() -> None:
    assert mask("top_left", 3, 5) == ["1....", "11...", "111.."]
    assert mask("bottom_right", 3, 5) == ["111..", "1111.", "11111"]
    assert mask("bottom_right", 5, 3) == ["...", "...", "1..", "11.", "111"]
    assert mask("top_left", 4, 5, 1) == ["1....", "11...", ".11..", "..11."]
    assert mask("top_left", 4, 6, 1, 2) == ["111...", "1111..", ".1111.", "..1111"]
    assert mask("bottom_right", 2, 6, 2, 0) == ["..111.", "...111"]
    assert mask("bottom_right", 2, 6, -1, -1) == ["111111", "111111"]
    assert mask("top_left", 4, 6, 0, 0, 2) == ["1.....", "11....", "111...", "11.1.."]


def test_distances_of_alibi_drawn_by_hand() -> None:
    assert compute_alibi_distances(problem(), 2, 4).tolist() == [[-2, -1, 0, -1], [-3, -2, -1, 0]]
    assert compute_alibi_distances(problem(), 3, 2).tolist() == [[-1, -2], [0, -1], [-1, 0]]
    window = problem(mask="top_left", window_left=2)
    assert compute_alibi_distances(window, 3, 4).tolist() == [[0, -1, -2, -3], [-1, 0, -1, -2], [-2, -1, 0, -1]]
    causal = problem(mask="bottom_right")
    assert compute_alibi_distances(causal, 2, 4).tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_alibi_of_a_causal_mask_is_that_of_its_corner() -> None:
    """Kernels count from the first key there: a constant in each row, which only the LSE shows."""
    causal = problem(bias="alibi", mask="bottom_right", lse=True)
    given = drawn(causal)
    # A window as wide as there are keys is the same mask, but counts from the diagonal.
    window = replace(causal, window_left=7)
    first, second = compute_reference(causal, given, GFX942), compute_reference(window, given, GFX942)
    np.testing.assert_allclose(first["o"], second["o"], rtol=1e-12)
    slopes = given["bias"].astype(float)[:, :, None]
    np.testing.assert_allclose(first["lse"] - second["lse"], slopes * (np.arange(5) + 2), rtol=1e-9)


def test_rows_that_see_nothing() -> None:
    found = compute_reference(problem(mask="bottom_right", seqlen_q=9, lse=True), drawn(problem(seqlen_q=9)), GFX942)
    assert np.all(found["o"][:, :2] == 0)
    assert np.all(found["lse"][..., :2] == -np.inf)
    assert np.all(np.isfinite(found["lse"][..., 2:]))


def test_layouts_agree() -> None:
    of = problem(lse=True)
    given = drawn(of)
    expected = compute_reference(of, given, GFX942)
    turned = {name: each.swapaxes(1, 2) for name, each in given.items()}
    found = compute_reference(replace(of, layout="bhsd"), turned, GFX942)
    np.testing.assert_array_equal(found["o"].swapaxes(1, 2), expected["o"])
    column = {**given, "v": np.moveaxis(given["v"], 1, 3)}
    np.testing.assert_array_equal(compute_reference(replace(of, v_layout="col"), column, GFX942)["o"], expected["o"])


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["none", "top_left", "bottom_right"]), st.integers(0, 9), st.booleans())
def test_a_group_is_its_sequences(kind: str, seed: int, alibi: bool) -> None:
    of = problem(**GROUP, mask=kind, lse=True, bias="alibi" if alibi else "none")
    given = drawn(of, seed)
    found = compute_reference(of, given, GFX942)
    q_at, k_at = given["seqstart_q"], given["seqstart_k"]
    for i in range(of.batch):
        q, k = slice(q_at[i], q_at[i + 1]), slice(k_at[i], k_at[i + 1])
        if q_at[i] == q_at[i + 1] or k_at[i] == k_at[i + 1]:
            assert np.all(found["o"][q] == 0)
            continue
        lengths = {"batch": 1, "seqlen_q": int(q_at[i + 1] - q_at[i]), "seqlen_k": int(k_at[i + 1] - k_at[i])}
        alone = replace(of, mode="batch", total_q=0, total_k=0, **lengths)
        its = {"q": given["q"][q][None], "k": given["k"][k][None], "v": given["v"][k][None]}
        if alibi:
            its["bias"] = given["bias"][i : i + 1]
        expected = compute_reference(alone, its, GFX942)
        np.testing.assert_allclose(found["o"][q], expected["o"][0], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(found["lse"][:, q], expected["lse"][0], rtol=1e-12)


@pytest.mark.parametrize("values", [{}, {"mask": "bottom_right"}, GROUP], ids=["batch", "masked", "group"])
@pytest.mark.parametrize("splits", [1, 2, 3, 7, 9])
def test_splitting_and_combining_is_forward(splits: int, values: dict[str, Any]) -> None:
    of = problem(num_splits=splits, lse=True, **values)
    given = drawn(of)
    expected = compute_reference(of, given, GFX942)
    split, combine = plan_next_stage(of, ()), plan_next_stage(of, (None,))  # type: ignore[arg-type]
    assert split is not None
    assert combine is not None
    between = compute_reference(split, given, GFX942)
    found = compute_reference(combine, {**given, **between}, GFX942)
    for name in ("o", "lse"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-15)


def test_parts_as_kernels_cut_them() -> None:
    def cut(splits: int, keys: int) -> list[tuple[int, int]]:
        return [(part.start, part.stop) for part in split_keys(problem(num_splits=splits), keys)]

    assert cut(1, 7) == [(0, 7)]
    assert cut(3, 7) == [(0, 3), (3, 6), (6, 7)]
    assert cut(4, 5) == [(0, 2), (2, 4), (4, 5), (5, 5)]
    assert cut(2, 0) == [(0, 0), (0, 0)]


def unpaged(of: Problem, given: dict[str, Any]) -> dict[str, Any]:
    """The cache of a paged problem in one piece, page by page."""
    made = {name: each for name, each in given.items() if name not in ("page_table", "k", "v")}
    for name in ("k", "v"):
        whole = np.zeros((of.batch, of.seqlen_k, *given[name].shape[2:]))
        for i, length in enumerate(given["seqlens_k"]):
            for token in range(length):
                page = given["page_table"][i, token // of.page_size]
                whole[i, token] = given[name][page, token % of.page_size]
        made[name] = whole
    return made


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(0, 9), st.sampled_from(["none", "bottom_right"]))
def test_paging_changes_nothing(page_size: int, seed: int, kind: str) -> None:
    of = problem("pagedkv", batch=4, page_size=page_size, pages=40, mask=kind, lse=True)
    given = drawn(of, seed)
    found = compute_reference(of, given, GFX942)
    expected = compute_reference(replace(of, page_size=0, pages=0), unpaged(of, given), GFX942)
    for name in ("o", "lse"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_listed_pages_are_paged_group() -> None:
    of = problem("batch_prefill", page_size=1, pages=30, lse=True, mask="bottom_right", **GROUP)
    given = drawn(of)
    table = np.zeros((3, 7), np.int32)
    for i, (first, last) in enumerate(zip(given["page_starts"], given["page_starts"][1:], strict=False)):
        table[i, : last - first] = given["page_list"][first:last]
    paged = {**given, "seqstart_k": given["page_starts"], "page_table": table}
    for name in ("page_list", "page_starts"):
        del paged[name]
    expected = compute_reference(replace(of, family="pagedkv"), paged, GFX942)
    found = compute_reference(of, given, GFX942)
    for name in ("o", "lse"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_quantised_results_are_scaled_and_held_to_their_type() -> None:
    of = problem(dtype="fp8")
    given = drawn(of)
    usual = compute_reference(of, given, GFX942)["o"]
    scaled = replace(of, static_quant=True, scale_p=4.0, scale_o=0.5)
    np.testing.assert_allclose(compute_reference(scaled, given, GFX942)["o"], 2 * usual, rtol=1e-12)
    held = compute_reference(replace(scaled, scale_o=1e4), given, GFX942)["o"]
    assert np.abs(held).max() == 240  # the largest value of E4M3 fnuz


def test_every_output_has_its_shape() -> None:
    of = problem(store_randval=True, lse=True, p_drop=0.25, **GROUP)
    found = compute_reference(of, drawn(of), GFX942)
    assert {name: each.shape for name, each in found.items()} == {t.name: t.shape for t in list_tensors(of) if t.output}
