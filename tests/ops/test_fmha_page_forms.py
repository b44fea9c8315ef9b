"""Pages of batch_prefill: their order in memory, their look-up, and attention over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.dispatch.plan import get_execution
from tilewright.ops import find_op, fmha
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.sequences import iterate_sequences, list_pages, order_by_tokens, order_by_vectors
from tilewright.ops.fmha.tensors import list_tensors
from tilewright.ops.problem_values import dump_problem

ARCH = archs.load("gfx942")
EXECUTION = get_execution("fmha")


def make_problem(**values: Any) -> Problem:
    common = {"family": "batch_prefill", "mode": "group", "dtype": "fp16", "batch": 4, "heads": 4, "kv_heads": 2}
    sizes = {"seqlen_q": 9, "total_q": 20, "seqlen_k": 75, "total_k": 130, "hdim_q": 24, "hdim_v": 16}
    return Problem(**{**common, **sizes, "page_size": 16, **values})


def shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in list_tensors(problem)}


def test_tensors_of_a_list() -> None:
    """As SGLang has them: starts in one list of pages, and the length of each last page."""
    found = shapes(make_problem(pages=40))
    assert found["k"] == (40, 16, 2, 24)
    assert found["page_starts"] == (5,)
    assert found["page_list"] == ((130 + 4 * 15) // 16,)
    assert found["last_page_lens"] == (4,)
    assert not {"page_table", "seqlens_k", "seqstart_k"} & set(found)
    assert shapes(make_problem(listed_pages=99))["page_list"] == (99,)


def test_pages_of_one_token_have_no_last_length() -> None:
    found = shapes(make_problem(page_size=1))
    assert "last_page_lens" not in found
    assert found["page_list"] == (130,)


def test_tensors_of_a_table() -> None:
    """As vLLM has them: a row of pages for each sequence, and lengths."""
    found = shapes(make_problem(page_lookup="table"))
    assert found["page_table"] == (4, 5)
    assert found["seqlens_k"] == (4,)
    assert not {"page_starts", "page_list", "last_page_lens", "seqstart_k"} & set(found)


@pytest.mark.parametrize(("dtype", "vector"), [("fp16", 8), ("fp32", 4), ("fp8bf16", 16)])
def test_vectorised_pages(dtype: str, vector: int) -> None:
    problem = make_problem(dtype=dtype, hdim_q=32, hdim_v=16, kv_layout="vectorised", pages=11)
    found = shapes(problem)
    assert found["k"] == (11, 2, 32 // vector, 16, vector)
    assert found["v"] == (11, 2, 16 // vector, 16, vector)


def test_each_element_of_a_vectorised_page_is_where_the_layout_says() -> None:
    problem = make_problem(kv_layout="vectorised", pages=3)
    x = problem.vector_size
    k = np.arange(3 * 2 * 16 * 24).reshape(3, 2, 16, 24)
    v = np.arange(3 * 2 * 16 * 16).reshape(3, 2, 16, 16)
    stored = {"k": order_by_vectors(problem, k, "k"), "v": order_by_vectors(problem, v, "v")}
    assert {name: array.shape for name, array in stored.items()} == {n: shapes(problem)[n] for n in ("k", "v")}
    for page, head, token in np.ndindex(3, 2, 16):
        for element in range(24):
            assert stored["k"][page, head, element // x, token, element % x] == k[page, head, token, element]
        for element in range(16):
            assert stored["v"][page, head, token // x, element, token % x] == v[page, head, token, element]
    assert (order_by_tokens(problem, stored["k"], "k") == k).all()
    assert (order_by_tokens(problem, stored["v"], "v") == v).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_all_forms_of_a_cache_give_the_same_result(seed: int) -> None:
    """The same tokens: in single pages, in larger ones, in vectors, and looked up in a table."""
    problem = make_problem(mask="bottom_right", lse=True)
    given = EXECUTION.inputs(problem, seed, ARCH)
    expected = EXECUTION.reference(problem, given, ARCH)
    vectors = replace(problem, kv_layout="vectorised")
    reordered = {n: order_by_vectors(vectors, order_by_tokens(problem, given[n], n), n) for n in ("k", "v")}
    table = replace(problem, page_lookup="table")
    rows = np.zeros(shapes(table)["page_table"], np.int32)
    lengths = np.zeros(4, np.int32)
    tokens = replace(problem, page_size=1, pages=given["k"].shape[0] * 16)
    listed, starts = [], [0]
    for sequence in iterate_sequences(problem, given):
        pages = list_pages(problem, given, sequence, sequence.keys)
        rows[sequence.number, : len(pages)], lengths[sequence.number] = pages, sequence.keys
        listed += [int(pages[token // 16]) * 16 + token % 16 for token in range(sequence.keys)]
        starts.append(len(listed))
    single = {
        **{name: given[name].reshape(-1, 1, *given[name].shape[2:]) for name in ("k", "v")},
        **{"page_list": np.asarray(listed), "page_starts": np.asarray(starts)},
    }
    queries = {name: given[name] for name in ("q", "seqstart_q")}
    for other, inputs in (
        (vectors, {**given, **reordered}),
        (table, {**queries, "k": given["k"], "v": given["v"], "page_table": rows, "seqlens_k": lengths}),
        (tokens, {**queries, **single}),
    ):
        found = EXECUTION.reference(other, inputs, ARCH)
        for name in ("o", "lse"):
            assert np.array_equal(found[name], expected[name])


def test_inputs_of_a_form_have_its_shapes() -> None:
    for values in ({}, {"kv_layout": "vectorised"}, {"page_lookup": "table"}, {"layout": "bhsd"}):
        problem = make_problem(**values)
        given = EXECUTION.inputs(problem, 1, ARCH)
        wanted = {tensor.name: tensor.shape for tensor in list_tensors(problem) if not tensor.output}
        assert {name: array.shape for name, array in given.items()} == wanted


def test_lengths_of_sequences_end_anywhere_in_a_page() -> None:
    given = EXECUTION.inputs(make_problem(batch=12, total_k=500), 3, ARCH)
    keys = [sequence.keys for sequence in iterate_sequences(make_problem(batch=12, total_k=500), given)]
    assert sum(keys) == 500
    assert 0 in keys
    assert len({count % 16 for count in keys}) > 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kv_layout": "vectorised", "page_size": 4}, "page_size is 4, vectorised pages need a multiple of 8"),
        ({"kv_layout": "vectorised", "family": "pagedkv"}, "kv_layout = vectorised is only for batch_prefill"),
        ({"page_lookup": "table", "family": "pagedkv"}, "page_lookup = table is only for batch_prefill"),
    ],
)
def test_a_form_that_is_impossible(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        make_problem(**values)


def test_too_few_listed_pages_are_an_error() -> None:
    with pytest.raises(InvalidValueError, match="listed_pages = 3: increase it"):
        EXECUTION.inputs(make_problem(listed_pages=3), 1, ARCH)


def test_names_of_earlier_kernels_and_problems_have_no_newer_fields() -> None:
    kernel = find_op("fmha").make_kernel(fmha.OP.make_example(), "gfx942")
    assert not any(word in kernel.slug for word in ("page", "kv_", "by_"))
    text = dump_problem(make_problem(page_size=1))
    assert not any(word in text for word in ("kv_layout", "page_lookup", "listed_pages"))
    assert "kv_layout" in dump_problem(make_problem(kv_layout="vectorised"))
