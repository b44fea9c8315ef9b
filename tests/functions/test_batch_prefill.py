"""`mha_batch_prefill_func` over pages as SGLang and vLLM have them, compared with attention in double precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import in_tier_ci
from ci_kernels import format_name, read_list
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops import fmha
from tilewright.ops.fmha.functions import paged_attention
from tilewright.ops.kernel import Kernel

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = [pytest.mark.compile, pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)]
SEED = 36_2026
HEADS, KV_HEADS, SIZE = 4, 2, 64
QUERIES, KEYS = (9, 1, 30), (75, 1, 33)  # no multiples of a page, and one token
_FIELDS: dict[str, Any] = {
    **{"family": "batch_prefill", "mode": "group", "dtype": "fp16", "pipeline": "qr_async", "paged": True},
    **{"block": (64, 64, 32, 64, 32, 64), "waves": (4, 1, 1, 4, 1, 1), "mma": (16, 16, 16, 16, 16, 16)},
    **{"pad_q": True, "pad_k": True, "pad_hdim_q": 8, "pad_hdim_v": 8, "mask_form": "any", "lse": True},
}
FORMS = {
    "vectorised": {"page_size": 16, "kv_layout": "vectorised"},
    "linear": {"page_size": 16},
    "table": {"page_size": 64, "page_lookup": "table"},
    "tokens": {},
}


def make_kernel(form: str, **fields: Any) -> Kernel:
    return fmha.OP.make_kernel(fmha.Config(**{**_FIELDS, **FORMS[form], **fields}), "gfx942")


def mark_forms() -> list[Any]:
    """Those that CI does not build with the newer headers are `deep`."""
    listed = {entry.name for entry in read_list()}
    names = {form: format_name(make_kernel(form), tree=NEWER) for form in FORMS}
    return [pytest.param(form, marks=() if name in listed else pytest.mark.deep) for form, name in names.items()]


@pytest.fixture(autouse=True)
def newer_tree() -> Iterator[str]:
    with use_tree(TREES / NEWER) as generation:
        yield generation


def draw(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def make_call(
    page_size: int,
    *,
    vectorised: bool = False,
    table: bool = False,
    queries: Sequence[int] = QUERIES,
    counts: Sequence[int] = KEYS,
) -> tuple[dict[str, Any], Any, Any]:
    """Arguments with a shuffled cache, and the keys and values of all sequences one after another."""
    starts = [int(each) for each in np.concatenate([[0], np.cumsum(counts)])]
    keys, values = draw(starts[-1], KV_HEADS, SIZE), draw(starts[-1] + 1, KV_HEADS, SIZE)[:-1]
    needed = [-(-count // page_size) for count in counts]
    pages = sum(needed) + 3
    order = np.random.default_rng(5).permutation(pages)
    cache = torch.full((2, pages, page_size, KV_HEADS, SIZE), 96.0).half()
    first = [int(each) for each in np.concatenate([[0], np.cumsum(needed)])]
    for i, count in enumerate(counts):
        for token in range(count):
            page = order[first[i] + token // page_size]
            cache[0, page, token % page_size] = keys[starts[i] + token]
            cache[1, page, token % page_size] = values[starts[i] + token]
    k, v = cache.clone()
    if page_size == 1:
        k, v = k[:, 0].contiguous(), v[:, 0].contiguous()
    if vectorised:
        x = 8
        k = k.permute(0, 2, 3, 1).reshape(pages, KV_HEADS, SIZE // x, x, page_size).transpose(3, 4).contiguous()
        v = v.reshape(pages, page_size // x, x, KV_HEADS, SIZE).permute(0, 3, 1, 4, 2).contiguous()
    call = {
        **{"q": draw(sum(queries), HEADS, SIZE), "k": k, "v": v, "kv_indptr": torch.tensor(first, dtype=torch.int32)},
        "cu_seqlens_q": torch.tensor([0, *np.cumsum(queries)], dtype=torch.int32),
        "kv_page_indices": torch.tensor(order, dtype=torch.int32),
        "kv_last_page_lens": torch.tensor([(count - 1) % page_size + 1 for count in counts], dtype=torch.int32),
        **{"max_seqlen_q": max(queries), "max_seqlen_k": max(counts), "causal": True, "return_lse": True},
    }
    if table:
        rows = np.zeros((len(counts), max(needed)), np.int32)
        for i, count in enumerate(needed):
            rows[i, :count] = order[first[i] : first[i] + count]
        call |= {"block_table": torch.tensor(rows), "seqlen_k": torch.tensor(counts, dtype=torch.int32)}
    return call, keys, values


def compute_reference(
    call: dict[str, Any], keys: Any, values: Any, lengths: Sequence[int] = QUERIES, counts: Sequence[int] = KEYS
) -> tuple[Any, Any]:
    """Results and LSE in double precision, by torch. A sink is one more column of the scores, without a value."""
    sinks = torch.full((HEADS,), float("-inf")) if call.get("sink_ptr") is None else call["sink_ptr"]
    outs, logarithms, q_at, k_at = [], [], 0, 0
    scale = call.get("softmax_scale") or SIZE**-0.5
    for queries, count in zip(lengths, counts, strict=True):
        q = call["q"][q_at : q_at + queries].double().transpose(0, 1)
        k, v = (each[k_at : k_at + count].double().transpose(0, 1) for each in (keys, values))
        k, v = (each.repeat_interleave(HEADS // KV_HEADS, 0) for each in (k, v))
        hidden = torch.ones(queries, count).triu(1 + count - queries).bool() & call["causal"]
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(hidden, float("-inf"))
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(HEADS, queries, 1)], -1)
        outs.append(torch.nan_to_num(scores.softmax(-1)[..., :-1]) @ v)
        logarithms.append(scores.logsumexp(-1))
        q_at, k_at = q_at + queries, k_at + count
    return torch.cat([each.transpose(0, 1) for each in outs]), torch.cat(logarithms, 1)


def run(kernel: Kernel, call: dict[str, Any]) -> Any:
    with tw.options(pool=[kernel], build="never" if in_tier_ci() else "auto"), twt.emulate("gfx942"):
        return twt.mha_batch_prefill_func(**call)


@pytest.mark.parametrize("form", mark_forms())
def test_pages_of_any_form(form: str) -> None:
    fields = FORMS[form]
    page_size: Any = fields.get("page_size", 1)
    call, keys, values = make_call(page_size, vectorised="kv_layout" in fields, table="page_lookup" in fields)
    wanted, logarithms = compute_reference(call, keys, values)
    found, lse = run(make_kernel(form), call)
    assert (found.double() - wanted).abs().max() < 4e-3
    finite = torch.isfinite(logarithms)
    assert torch.equal(torch.isfinite(lse), finite)
    assert (lse.double() - logarithms)[finite].abs().max() < 1e-4


@pytest.mark.parametrize("form", mark_forms())
@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.deep)])
def test_random_calls(form: str, count: int) -> None:
    fields = FORMS[form]
    page_size: Any = fields.get("page_size", 1)
    for number in range(count):
        random = Random(f"{SEED} {form} {number}")
        # Calls with one query each have no mask, and this kernel has one.
        lengths = [random.randint(2, 70), *(random.randint(1, 70) for _ in range(random.randint(0, 4)))]
        counts = [random.choice((1, page_size, random.randint(1, 200))) for _ in lengths]
        call, keys, values = make_call(
            page_size, vectorised="kv_layout" in fields, table="page_lookup" in fields, queries=lengths, counts=counts
        )
        call["softmax_scale"] = random.choice((None, 0.05, 0.3))
        wanted, logarithms = compute_reference(call, keys, values, lengths, counts)
        found, lse = run(make_kernel(form), call)
        assert (found.double() - wanted).abs().max() < 4e-3, (number, lengths, counts)
        finite = torch.isfinite(logarithms)
        assert torch.equal(torch.isfinite(lse), finite), (number, lengths, counts)
        assert (lse.double() - logarithms)[finite].abs().max() < 1e-4, (number, lengths, counts)


@pytest.mark.parametrize("form", mark_forms())
@pytest.mark.parametrize("sinks", [(0.5, -1.0, 2.0, 3.0), (30.0, -30.0, 0.0, float("-inf"))])
def test_learned_sinks(form: str, sinks: tuple[float, ...]) -> None:
    fields = FORMS[form]
    page_size: Any = fields.get("page_size", 1)
    call, keys, values = make_call(page_size, vectorised="kv_layout" in fields, table="page_lookup" in fields)
    call["sink_ptr"] = torch.tensor(sinks)
    wanted, logarithms = compute_reference(call, keys, values)
    without, _ = compute_reference({**call, "sink_ptr": None}, keys, values)
    assert (without - wanted).abs().max() > 0.1
    found, lse = run(make_kernel(form), call)
    assert (found.double() - wanted).abs().max() < 4e-3
    finite = torch.isfinite(logarithms)
    assert torch.equal(torch.isfinite(lse), finite)
    assert (lse.double() - logarithms)[finite].abs().max() < 1e-4


def test_the_result_is_written_to_an_array() -> None:
    call, keys, values = make_call(16, vectorised=True)
    out = torch.empty(sum(QUERIES), HEADS, SIZE).half()
    found, _ = run(make_kernel("vectorised"), {**call, "out": out})
    assert found.data_ptr() == out.data_ptr()
    assert (out.double() - compute_reference(call, keys, values)[0]).abs().max() < 4e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout_p": 0.1}, "does not support dropout_p"),
        ({"return_attn_probs": True}, "does not support return_attn_probs"),
        ({"q_descale": torch.ones(1)}, "does not support q_descale"),
        ({"sink_ptr": torch.zeros(HEADS).half()}, "sink_logits is float16, must be float32"),
        ({"sink_ptr": torch.zeros(KV_HEADS)}, "sink_logits is 2, must be 4: one number for each head"),
        ({"seqlen_k": torch.tensor(KEYS)}, "seqlen_k is only for block_table"),
        ({"kv_last_page_lens": None}, "last_page_lens is missing: pages of 16 tokens"),
        ({"kv_indptr": None}, "page_starts is missing"),
        ({"block_table": torch.zeros(3, 5).int()}, "seqlens_k is missing"),
        (
            {"block_table": torch.zeros(2, 5).int(), "seqlen_k": torch.tensor(KEYS).int()},
            "page_table is 2×5, must be 3×5",
        ),
        ({"block_table": torch.zeros(3, 4).int(), "seqlen_k": torch.tensor(KEYS).int()}, "row of page_table holds 64"),
        ({"kv_page_indices": torch.zeros(9).half()}, "page_list is float16, must be int32"),
        ({"k": torch.zeros(9, 16, 2, 32).half()}, "must match"),
        ({"q": torch.zeros(40, 3, 64).half()}, "3 heads, which is not a multiple"),
        ({"q": torch.zeros(40, 4, 32).half()}, "the heads of q have 32 elements, those of k 64"),
        ({"k": torch.zeros(9, 2, 16, 64).half().transpose(1, 2)}, "k_cache has gaps"),
    ],
)
def test_a_call_that_is_not_supported(changes: dict[str, Any], message: str) -> None:
    call, _, _ = make_call(16)
    with pytest.raises((InvalidValueError, TensorError), match=message), twt.emulate("gfx942"):
        twt.mha_batch_prefill_func(**{**call, **changes})


def test_vectors_have_sixteen_bytes() -> None:
    call, _, _ = make_call(16, vectorised=True)
    with pytest.raises(TensorError, match="vectors of k and v have 4 and 8 elements, must have 16 bytes: 8"):
        k = call["k"].reshape(-1, KV_HEADS, SIZE // 4, 16, 4)
        paged_attention(
            call["q"], k, call["v"], cu_seqlens_q=call["cu_seqlens_q"], max_seqlen_q=30, max_seqlen_k=75,
            page_starts=call["kv_indptr"], page_list=call["kv_page_indices"],
            last_page_lens=call["kv_last_page_lens"], device="emulated:gfx942",
        )  # fmt: skip
