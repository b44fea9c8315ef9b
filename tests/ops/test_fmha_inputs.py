"""Inputs of attention problems: lengths, page tables, and what is special about seed 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import arch as archs
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.inputs import make_inputs
from tilewright.ops.fmha.kind import compute_reference
from tilewright.ops.fmha.kinds import COMPUTATIONS
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import list_tensors

GFX942 = archs.load("gfx942")
SIZES = {"batch": 3, "heads": 4, "kv_heads": 2, "seqlen_q": 5, "seqlen_k": 7, "hdim_q": 8, "hdim_v": 4}


def problem(family: str = "forward", **values: Any) -> Problem:
    return Problem(**{"family": family, "dtype": "fp16", **SIZES, **values})


MODES = [(family, mode) for family in COMPUTATIONS for mode in ("batch", "group")]
# New tokens lie in sequences of one length.
MODES.remove(("appendkv", "group"))


@pytest.mark.parametrize(("family", "mode"), MODES)
def test_every_input_has_its_shape_and_type(family: str, mode: str) -> None:
    totals = {"mode": mode, "total_q": 8, "total_k": 12} if mode == "group" else {}
    paged = {"page_size": 1} if family == "batch_prefill" else {}
    splits = {"num_splits": 2} if family in ("splitkv", "combine") else {}
    of = problem(family, seqlen_new=2 if family == "appendkv" else 0, **totals, **paged, **splits)
    for seed in (0, 1):
        found = make_inputs(of, seed, GFX942)
        wanted = [tensor for tensor in list_tensors(of) if not tensor.output or tensor.updated]
        assert list(found) == [tensor.name for tensor in wanted]
        for tensor in wanted:
            assert found[tensor.name].shape == tensor.shape
            assert found[tensor.name].dtype == to_numpy_dtype(tensor.dtype, GFX942)
        again = make_inputs(of, seed, GFX942)
        assert all(np.array_equal(found[name], again[name]) for name in found)
        for each in compute_reference(of, found, GFX942).values():
            assert not np.isnan(each).any()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lengths_of_a_group_add_up(data: st.DataObject) -> None:
    batch, longest = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    total = data.draw(st.integers(longest, longest * batch))
    sizes = {"batch": batch, "seqlen_q": longest, "seqlen_k": longest, "total_q": total, "total_k": total}
    found = make_inputs(problem(mode="group", **sizes), data.draw(st.integers(0, 9)), GFX942)
    for name in ("seqstart_q", "seqstart_k"):
        lengths = np.diff(found[name])
        assert found[name][0] == 0
        assert (lengths.sum(), lengths.max(), lengths.min() >= 0) == (total, longest, True)
    if total >= longest + batch - 1:
        assert np.diff(found["seqstart_q"]).min() >= 1


def test_edges_are_drawn() -> None:
    of = problem(mode="group", batch=4, seqlen_q=9, seqlen_k=9, total_q=20, total_k=16)
    found = make_inputs(of, 1, GFX942)
    assert {1, 9} <= set(np.diff(found["seqstart_q"]).tolist())
    assert {0, 1, 9} <= set(np.diff(found["seqstart_k"]).tolist())
    cached = make_inputs(problem("splitkv", num_splits=2), 1, GFX942)["seqlens_k"]
    assert sorted(cached.tolist()) == [0, 1, 7]
    appended = make_inputs(problem("appendkv", seqlen_new=3), 1, GFX942)["seqlens_k"]
    assert {0, 4} <= set(appended.tolist())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 20))
def test_sequences_have_pages_of_their_own(page_size: int, seed: int, more: int) -> None:
    need = 3 * -(-7 // page_size)
    of = problem("pagedkv", page_size=page_size, pages=need + more)
    found = make_inputs(of, seed, GFX942)
    used = [
        page
        for row, length in zip(found["page_table"], found["seqlens_k"], strict=True)
        for page in row[: -(-length // page_size)].tolist()
    ]
    assert len(set(used)) == len(used)
    assert found["page_table"].min() >= 0
    assert found["page_table"].max() < need + more


def test_unused_tokens_are_marked() -> None:
    """Of the pages, only what belongs to a sequence is small."""
    of = problem("pagedkv", page_size=4, pages=9)
    found = make_inputs(of, 1, GFX942)
    small = (np.abs(found["k"].astype(float)) < 50).all(axis=(2, 3))
    assert small.sum() == found["seqlens_k"].sum()
    assert (small == (np.abs(found["v"].astype(float)) < 50).all(axis=(2, 3))).all()


def test_special_inputs_give_means_of_values() -> None:
    of = problem(mask="top_left", lse=True)
    given_ = make_inputs(of, 0, GFX942)
    found = compute_reference(of, given_, GFX942)
    v = given_["v"].astype(float)
    assert np.array_equal(v, np.rint(v))
    for row in range(5):
        np.testing.assert_array_equal(found["o"][:, row, ::2], v[:, : row + 1].sum(axis=1) / (row + 1))
        np.testing.assert_allclose(found["lse"][..., row], np.log(row + 1))


def test_too_few_pages_and_too_many_tokens() -> None:
    with pytest.raises(InvalidValueError, match="pages = 1"):
        make_inputs(problem("pagedkv", page_size=4, pages=1), 0, GFX942)
    with pytest.raises(InvalidValueError, match="8 new tokens"):
        make_inputs(problem("appendkv", seqlen_new=8), 0, GFX942)


def test_a_cache_without_room_for_old_tokens_has_none() -> None:
    """As many new tokens as the cache holds: all sequences are empty before, however many there are."""
    of = problem("appendkv", seqlen_new=7, batch=4, rotary="half")
    for seed in (0, 1):
        assert set(make_inputs(of, seed, GFX942)["seqlens_k"].tolist()) == {0}
        compute_reference(of, make_inputs(of, seed, GFX942), GFX942)


@pytest.mark.parametrize("family", ["forward", "pagedkv", "splitkv", "batch_prefill"])
def test_some_queries_point_to_a_key(family: str) -> None:
    """Its score is so far above the others that exp of the difference is no number of fp16."""
    pages = {"page_size": 1} if family in ("pagedkv", "batch_prefill") else {}
    splits = {"num_splits": 2} if family == "splitkv" else {}
    of = problem(family, seqlen_q=64, seqlen_k=32, hdim_q=64, mask="bottom_right", **pages, **splits)
    whole, drawn = (make_inputs(of, seed, GFX942) for seed in (0, 1))
    length = np.sqrt((drawn["q"].astype(np.float64) ** 2).sum(axis=-1))
    assert 0.1 < (length > 22).mean() < 0.3  # others are about 16
    assert np.abs(whole["q"].astype(np.float64)).max() <= 3
    if family == "forward":
        q, k = (drawn[name].astype(np.float64).swapaxes(1, 2) for name in ("q", "k"))
        scores = of.scale * q @ np.repeat(k, 2, axis=1).swapaxes(-1, -2)
        second, first = np.sort(scores, axis=-1)[..., -2:].swapaxes(-1, 0).reshape(2, -1)
        pointing = first - second > np.log(65504)
        assert 0.12 < pointing.mean() < 0.25
        assert 0.02 < (scores.min(axis=-1) < -14).mean() < 0.1
        assert len(set(scores.argmax(axis=-1).swapaxes(0, -1).reshape(-1)[pointing].tolist())) >= 28
