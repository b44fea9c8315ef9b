"""Plans of attention: the problem of each combination of arrays and options, views and copies, errors, kernels."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, TensorError, TilewrightError, UnknownValueError, UnsupportedError
from tilewright.ops.array_plan import ArrayPlan, ArraySpec
from tilewright.ops.fmha import OP, Problem
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.plan_append import plan_append
from tilewright.ops.fmha.plan_attention import plan_attention
from tilewright.ops.fmha.plan_gradient import plan_gradient
from tilewright.ops.fmha.tensors import list_tensors
from tilewright.ops.strides import packed_strides
from tilewright.registry.registry import Registry

GPU = archs.load("gfx942")
ARRAYS = ("q", "k", "v", "bias", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k", "seqlens_k", "page_table")
GRADIENT = (*ARRAYS[:3], "output_gradient", "out", "lse", *ARRAYS[3:7])
TABLES = ("cu_seqlens_q", "cu_seqlens_k", "seqlens_k", "page_table")


def spec(name: str, shape: tuple[int, ...], dtype: str = "", strides: tuple[int, ...] | None = None) -> ArraySpec:
    kinds = {**dict.fromkeys(TABLES, "int32"), **dict.fromkeys(("alibi_slopes", "lse"), "fp32")}
    return ArraySpec(0, name, dtype or kinds.get(name, "bf16"), shape, strides or packed_strides(shape))


def make_specs(names: tuple[str, ...], arrays: dict[str, Any]) -> list[ArraySpec | None]:
    made: list[ArraySpec | None] = []
    for place, name in enumerate(names):
        value = arrays.pop(name, None)
        if isinstance(value, tuple):
            value = spec(name, value)
        made.append(value and ArraySpec(place, name, value.dtype, value.shape, value.strides))
    return made


def plan(q: Any, k: Any, v: Any = None, *, outs: tuple[ArraySpec | None, ...] = (None,), **given: Any) -> ArrayPlan:
    arrays = {"q": q, "k": k, "v": k if v is None else v, **given}
    specs = make_specs(ARRAYS, arrays)
    options = {name: value for name, value in arrays.items() if name not in ARRAYS}
    return plan_attention(GPU, *specs, *outs, AttentionOptions(**options))  # type: ignore[arg-type]


def plan_back(q: tuple[int, ...], k: tuple[int, ...], **given: Any) -> ArrayPlan:
    lse = (q[1], q[0]) if len(q) == 3 else (q[0], q[2], q[1])
    arrays = {"q": q, "k": k, "v": k, "output_gradient": q, "out": q, "lse": lse, **given}
    specs = make_specs(GRADIENT, arrays)
    options = {name: value for name, value in arrays.items() if name not in GRADIENT}
    return plan_gradient(GPU, *specs, None, AttentionOptions(**options))  # type: ignore[arg-type]


def get_problem(made: ArrayPlan) -> Problem:
    (launch,) = made.launches
    problem = launch.problem
    assert isinstance(problem, Problem)
    wanted = [tensor.shape for tensor in list_tensors(problem)]
    assert [part.shape for part in (*launch.inputs, *launch.outputs)] == wanted
    assert all(part.is_packed for part in (*launch.inputs, *launch.outputs))
    return problem


Q, K = (2, 100, 8, 64), (2, 120, 2, 64)


def test_sizes_of_a_batch() -> None:
    problem = get_problem(plan(Q, K, (2, 120, 2, 128)))
    assert problem == Problem(
        family="forward", dtype="bf16", batch=2, heads=8, kv_heads=2, seqlen_q=100, seqlen_k=120, hdim_q=64, hdim_v=128
    )


def test_the_other_layout() -> None:
    problem = get_problem(plan((2, 8, 100, 64), (2, 2, 120, 64), layout="bhsd"))
    assert (problem.layout, problem.heads, problem.kv_heads, problem.seqlen_q) == ("bhsd", 8, 2, 100)


def test_views_of_the_other_layout_are_not_copied() -> None:
    q, k = spec("q", (2, 8, 100, 64)), spec("k", (2, 2, 120, 64))
    made = plan(q.permute(0, 2, 1, 3), k.permute(0, 2, 1, 3))
    assert get_problem(made).layout == "bhsd"
    assert not any(part.packed for part in made.launches[0].inputs)
    assert made.results[0].shape == Q
    assert made.results[0].strides == (8 * 100 * 64, 64, 100 * 64, 1)


def test_other_views_are_copied() -> None:
    cut = spec("q", Q, strides=(100 * 8 * 96, 8 * 96, 96, 1))
    made = plan(cut, K)
    assert get_problem(made).layout == "bshd"
    assert [part.packed for part in made.launches[0].inputs] == [True, False, False]


def test_an_array_for_the_result_is_used_or_copied_to() -> None:
    out = spec("out", Q)
    assert not plan(Q, K, outs=(out,)).results[0].packed
    gaps = spec("out", Q, strides=(100 * 8 * 96, 8 * 96, 96, 1))
    assert plan(Q, K, outs=(gaps,)).results[0].packed
    by_head = spec("out", (2, 8, 100, 64)).permute(0, 2, 1, 3)
    assert plan(Q, K, outs=(by_head,)).results[0].packed
    with pytest.raises(TensorError, match="out is 2×100×8×32 of bfloat16, must be 2×100×8×64"):
        plan(Q, K, outs=(spec("out", (2, 100, 8, 32)),))
    with pytest.raises(InvalidValueError, match="2 arrays, but there are 1 results"):
        plan(Q, K, outs=(out, spec("lse", (2, 8, 100))))


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, ("none", -1, 0)),
        ({"causal": True}, ("bottom_right", -1, 0)),
        ({"window": (-1, -1)}, ("none", -1, 0)),
        ({"window": (10, 0)}, ("bottom_right", 10, 0)),
        ({"window": (10, -1)}, ("bottom_right", 10, -1)),
        ({"window": (10, 20), "causal": True}, ("bottom_right", 10, 0)),
        ({"window": (119, 99)}, ("none", -1, 0)),
        ({"window": (118, 98)}, ("bottom_right", 118, 98)),
    ],
)
def test_masks(options: dict[str, Any], mask: tuple[str, int, int]) -> None:
    problem = get_problem(plan(Q, K, **options))
    assert (problem.mask, problem.window_left, problem.window_right) == mask


def test_one_query_needs_no_causal_mask() -> None:
    assert get_problem(plan((2, 1, 8, 64), K, causal=True)).mask == "none"


def test_scores_and_dropout() -> None:
    problem = get_problem(plan(Q, K, scale=0.5, softcap=30, dropout=0.1, seed=3, offset=4, return_lse=True))
    assert (problem.scale, problem.logits_cap, problem.lse) == (0.5, 30.0, True)
    assert (problem.p_drop, problem.drop_seed, problem.drop_offset) == (0.1, 3, 4)
    # A seed without dropout does not matter: the same problem, so the same prepared call.
    assert get_problem(plan(Q, K, seed=3)) == get_problem(plan(Q, K))


def test_a_bias_is_expanded_and_slopes_are_repeated() -> None:
    made = plan(Q, K, bias=(100, 120))
    assert get_problem(made).bias == "elementwise"
    assert made.launches[0].inputs[3].expanded == (2, 8, 100, 120)
    whole = plan(Q, K, bias=(2, 8, 100, 120)).launches[0].inputs[3]
    assert not whole.packed
    sloped = plan(Q, K, alibi_slopes=(8,))
    assert get_problem(sloped).bias == "alibi"
    assert sloped.launches[0].inputs[3].expanded == (2, 8)


PACKED = {"cu_seqlens_q": (4,), "cu_seqlens_k": (4,), "max_seqlen_q": 64, "max_seqlen_k": 512}


def test_packed_sequences() -> None:
    made = plan((150, 8, 64), (200, 2, 64), return_lse=True, **PACKED)
    problem = get_problem(made)
    assert (problem.mode, problem.batch, problem.total_q, problem.total_k) == ("group", 3, 150, 200)
    assert (problem.seqlen_q, problem.seqlen_k) == (64, 200)  # no sequence is longer than all of them
    assert made.results[1].shape == (8, 150)


def test_packed_sequences_over_pages() -> None:
    problem = get_problem(plan((150, 8, 64), (40, 128, 2, 64), page_table=(3, 4), num_splits=0, **PACKED))
    assert (problem.family, problem.mode, problem.page_size, problem.pages) == ("pagedkv", "group", 128, 40)
    assert problem.seqlen_k == 512


def test_a_cache_is_split_if_there_is_little_work() -> None:
    cache = {"seqlens_k": (2,)}
    one = get_problem(plan((2, 1, 8, 64), (2, 8192, 2, 64), **cache))
    assert (one.family, one.num_splits) == ("forward", 19)  # 304 compute units, 16 work-groups
    short = get_problem(plan((2, 1, 8, 64), (2, 500, 2, 64), **cache))
    assert (short.family, short.num_splits) == ("pagedkv", 0)
    many = get_problem(plan((64, 1, 32, 64), (64, 8192, 2, 64), seqlens_k=(64,)))
    assert many.num_splits == 0
    assert get_problem(plan((2, 1, 8, 64), (2, 500, 2, 64), num_splits=2, **cache)).num_splits == 2
    assert get_problem(plan((2, 1, 8, 64), (2, 8192, 2, 64), num_splits=0, **cache)).family == "pagedkv"


def test_pages() -> None:
    made = plan((3, 4, 8, 64), (40, 128, 2, 64), seqlens_k=(3,), page_table=(3, 5), num_splits=0)
    problem = get_problem(made)
    assert (problem.batch, problem.page_size, problem.pages, problem.seqlen_k) == (3, 128, 40, 640)


def test_results_of_eight_bit_operands() -> None:
    q, k = spec("q", Q, "fp8_fnuz"), spec("k", K, "fp8_fnuz")
    made = plan(q, k)
    assert (get_problem(made).dtype, made.results[0].dtype) == ("fp8bf16", "bf16")
    assert get_problem(plan(q, k, outs=(spec("out", Q, "fp32"),))).dtype == "fp8fp32"
    assert get_problem(plan(q, k, outs=(spec("out", Q, "fp8_fnuz"),))).dtype == "fp8"


@pytest.mark.parametrize("shape", [(0, 100, 8, 64), (2, 0, 8, 64)])
def test_no_queries_need_no_launch(shape: tuple[int, ...]) -> None:
    made = plan(shape, (shape[0], 120, 2, 64), return_lse=True)
    assert not made.launches
    assert made.results[0].shape == shape
    assert not plan((0, 8, 64), (0, 2, 64), **{**PACKED, "cu_seqlens_q": (1,), "cu_seqlens_k": (1,)}).launches


def test_no_keys_give_zeros() -> None:
    assert plan(Q, (2, 0, 2, 64)).zeros
    with pytest.raises(InvalidValueError, match="LSE is minus infinity"):
        plan(Q, (2, 0, 2, 64), return_lse=True)


def test_gradients() -> None:
    made = plan_back(Q, K, causal=True, dropout=0.1, deterministic=True)
    problem = get_problem(made)
    assert (problem.family, problem.mask, problem.p_drop) == ("backward", "bottom_right", 0.1)
    assert problem.deterministic
    assert [result.shape for result in made.results] == [Q, K, K]
    biased = plan_back(Q, K, bias=(2, 8, 100, 120), bias_gradient=True)
    assert get_problem(biased).bias_gradient
    assert biased.results[3].shape == (2, 8, 100, 120)
    packed = get_problem(plan_back((150, 8, 64), (200, 2, 64), **PACKED))
    assert (packed.mode, packed.total_q) == ("group", 150)
    assert plan_back(Q, (2, 0, 2, 64)).zeros


WRONG: dict[str, tuple[dict[str, Any], type[TilewrightError], str]] = {
    "rank": ({"q": (100, 8, 64)}, TensorError, "q is 100×8×64, which has 3 dimensions, must have 4: batch"),
    "rank of k": ({"k": (120, 2, 64)}, TensorError, "k is 120×2×64"),
    "heads": ({"k": (2, 120, 3, 64)}, TensorError, "q has 8 heads, which is not a multiple of the 3 heads"),
    "no heads": ({"k": (2, 120, 0, 64)}, TensorError, "multiple of the 0 heads"),
    "batch": ({"k": (3, 120, 2, 64)}, TensorError, "q has 2 sequences, but k and v have 3"),
    "head size": ({"k": (2, 120, 2, 32)}, TensorError, "q have 64 elements, those of k 32"),
    "values": ({"v": (2, 121, 2, 64)}, TensorError, "tokens and heads must match"),
    "types": ({"k": spec("k", K, "fp16")}, TensorError, "q is bfloat16, k is float16"),
    "type": (
        {"q": spec("q", Q, "int8"), "k": spec("k", K, "int8")},
        TensorError,
        "q is int8: attention is computed in float16, bfloat16, float32",
    ),
    "result of another type": ({"outs": (spec("out", Q, "fp32"),)}, TensorError, "out is fp32, but results of bf16"),
    "layout": ({"layout": "sbhd"}, UnknownValueError, "bshd, bhsd"),
    "dropout": ({"dropout": 1.0}, InvalidValueError, "dropout is 1.0"),
    "scale": ({"scale": 0.0}, InvalidValueError, "scale is 0"),
    "softcap": ({"softcap": -1.0}, InvalidValueError, "softcap is -1.0"),
    "window": ({"window": (3,)}, InvalidValueError, "must be two numbers of keys"),
    "window below": ({"window": (-2, 0)}, InvalidValueError, "-1 means all"),
    "splits": ({"num_splits": -1}, InvalidValueError, "num_splits is -1"),
    "splits without a cache": ({"num_splits": 2}, InvalidValueError, "pass seqlens_k"),
    "two biases": ({"bias": (100, 120), "alibi_slopes": (8,)}, InvalidValueError, "either bias or alibi_slopes"),
    "capped bias": ({"bias": (100, 120), "softcap": 3.0}, InvalidValueError, "only without a bias"),
    "bias": ({"bias": (99, 120)}, TensorError, "cannot be broadcast"),
    "type of bias": ({"bias": spec("bias", (100, 120), "fp32")}, TensorError, "bias is float32, must be bfloat16"),
    "type of slopes": (
        {"alibi_slopes": spec("alibi_slopes", (8,), "bf16")},
        TensorError,
        "alibi_slopes is bfloat16, must be float32",
    ),
    "longest without starts": ({"max_seqlen_q": 9}, InvalidValueError, "only for packed sequences"),
    "one of the starts": ({"cu_seqlens_q": (3,)}, InvalidValueError, "both cu_seqlens_q and cu_seqlens_k"),
    "lengths": ({"seqlens_k": (3,)}, TensorError, "seqlens_k is 3, must have 2 elements"),
    "type of lengths": ({"seqlens_k": spec("s", (2,), "fp32")}, TensorError, "seqlens_k is float32, must be int32"),
    "pages without lengths": ({"page_table": (2, 4)}, InvalidValueError, "needs seqlens_k"),
    "rows of pages": ({"seqlens_k": (2,), "page_table": (3, 4)}, TensorError, "a row for each of 2 sequences"),
    "dropout of a cache": ({"seqlens_k": (2,), "dropout": 0.1}, InvalidValueError, "without a cache"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    changes, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        plan(**{"q": Q, "k": K, **changes})


WRONG_PACKED: dict[str, tuple[dict[str, Any], str]] = {
    "no longest": ({"max_seqlen_q": None}, "max_seqlen_q is missing"),
    "no longest keys": ({"max_seqlen_k": None}, "max_seqlen_k is missing"),
    "too short": ({"max_seqlen_q": 49}, "q has 150 tokens, which is more than 3 sequences of at most 49"),
    "negative": ({"max_seqlen_q": -1}, "max_seqlen_q is -1"),
    "starts": ({"cu_seqlens_k": (5,)}, "cu_seqlens_k is 5, must have 4 elements"),
    "lengths, too": ({"seqlens_k": (3,)}, "seqlens_k is not for packed sequences"),
    "four dimensions": ({"q": (2, 75, 8, 64)}, "must have 3: tokens, heads, elements"),
    "narrow table": (
        {"k": (9, 128, 2, 64), "page_table": (3, 3)},
        "max_seqlen_k is 512, but a row of page_table holds 384",
    ),
}


@pytest.mark.parametrize("name", WRONG_PACKED)
def test_errors_of_packed_sequences(name: str) -> None:
    changes, message = WRONG_PACKED[name]
    with pytest.raises((TensorError, InvalidValueError), match=message):
        plan(**{"q": (150, 8, 64), "k": (200, 2, 64), **PACKED, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": (2, 100, 8, 32)}, "out is 2×100×8×32, must be 2×100×8×64"),
        ({"lse": (2, 100, 8)}, "lse is 2×100×8, must be 2×8×100"),
        ({"lse": spec("lse", (2, 8, 100), "bf16")}, "lse must be float32"),
        ({"output_gradient": spec("output_gradient", Q, "fp16")}, "output_gradient is float16"),
        ({"bias_gradient": True}, "bias is None"),
        ({"k": (40, 128, 2, 64)}, "q has 2 sequences, but k and v have 40"),
    ],
)
def test_errors_of_gradients(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((TensorError, InvalidValueError), match=message):
        plan_back(**{"q": Q, "k": K, **changes})


APPENDED = ("k", "v", "seqlens_k", "page_table", "rotary_cos", "rotary_sin")


def plan_new(**given: Any) -> ArrayPlan:
    new, cache = (2, 3, 2, 64), (2, 512, 2, 64)
    arrays = {"k": new, "v": new, "seqlens_k": (2,), "q": (2, 3, 8, 64), "k_cache": cache, "v_cache": cache, **given}
    specs = make_specs(APPENDED, arrays)
    updated = [spec(name, value) if isinstance(value := arrays.pop(name), tuple) else value for name in UPDATED]
    return plan_append(GPU, *specs, *updated, AttentionOptions(**arrays), "half")  # type: ignore[arg-type]


UPDATED = ("q", "k_cache", "v_cache")
TURNS = {"rotary_cos": (600, 32), "rotary_sin": (600, 32)}


def test_new_tokens_of_a_cache() -> None:
    problem = get_problem(plan_new(**TURNS, causal=True))
    assert (problem.family, problem.seqlen_new, problem.seqlen_k) == ("appendkv", 3, 512)
    assert (problem.rotary, problem.rotary_dim, problem.mask) == ("half", 64, "bottom_right")
    pages = {"k_cache": (40, 128, 2, 64), "v_cache": (40, 128, 2, 64), "page_table": (2, 4)}
    plain = get_problem(plan_new(**pages))
    assert (plain.rotary, plain.page_size, plain.pages, plain.seqlen_k) == ("none", 128, 40, 512)
    assert not plan_new(k=(2, 0, 2, 64), v=(2, 0, 2, 64)).launches


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": (2, 3, 2, 32)}, "k is 2×3×2×32, must have new tokens of 2 sequences with 2 heads of 64 elements"),
        ({"v": (2, 4, 2, 64)}, "must have the same tokens"),
        ({"k": (2, 513, 2, 64), "v": (2, 513, 2, 64)}, "513 new tokens, but the cache of a sequence holds 512"),
        ({"rotary_cos": (600, 32)}, "both rotary_cos and rotary_sin"),
        ({**TURNS, "rotary_sin": (600, 16)}, "rotary_sin 600×16, both must have a row for each of 512 positions"),
        ({"rotary_cos": (500, 32), "rotary_sin": (500, 32)}, "512 positions"),
        ({"k_cache": spec("k", (2, 512, 2, 64), strides=(2**20, 256, 128, 1))}, "k_cache is .* updated in place"),
    ],
)
def test_errors_of_new_tokens(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((TensorError, InvalidValueError), match=message):
        plan_new(**changes)


KERNELS = {
    "new tokens": (plan_new(**TURNS), ["appendkv"]),
    "plain": (plan(Q, K), ["forward"]),
    "odd head size": (plan((2, 100, 8, 77), (2, 120, 2, 77)), ["forward"]),
    "multiple of 8": (plan((2, 100, 8, 80), (2, 120, 2, 80)), ["forward"]),
    "values of another size": (plan((2, 100, 8, 192), (2, 120, 2, 192), (2, 120, 2, 128)), ["forward"]),
    "all features": (plan(Q, K, causal=True, dropout=0.1, alibi_slopes=(8,), return_lse=True), ["forward"]),
    "packed": (plan((150, 8, 64), (200, 2, 64), causal=True, softcap=30.0, **PACKED), ["forward"]),
    "pages": (plan((3, 4, 8, 64), (40, 128, 2, 64), seqlens_k=(3,), page_table=(3, 5), num_splits=0), ["pagedkv"]),
    "packed pages": (
        plan((150, 8, 64), (40, 128, 2, 64), page_table=(3, 4), causal=True, num_splits=0, **PACKED),
        ["pagedkv"],
    ),
    "split": (plan((2, 1, 8, 64), (2, 8192, 2, 64), seqlens_k=(2,), return_lse=True), ["splitkv", "combine"]),
    "gradients": (plan_back(Q, K, causal=True), ["dot_do_o", "dq_dk_dv", "convert_dq"]),
    "deterministic": (
        plan_back((2, 100, 8, 96), (2, 120, 2, 96), deterministic=True, dropout=0.1),
        ["dot_do_o", "dq_dk_dv", "convert_dq"],
    ),
    "gradients of packed": (plan_back((150, 8, 64), (200, 2, 64), **PACKED), ["dot_do_o", "dq_dk_dv", "convert_dq"]),
    "gradient of the bias": (
        plan_back(Q, K, bias=(2, 8, 100, 120), bias_gradient=True),
        ["dot_do_o", "dq_dk_dv", "convert_dq"],
    ),
}


@pytest.mark.parametrize("gpu", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_portfolio_has_kernels_for_every_stage(name: str, gpu: str) -> None:
    made, stages = KERNELS[name]
    problem, arch = get_problem(made), archs.load(gpu)
    assert OP.portfolio is not None
    kernels = OP.portfolio.list_kernels(problem, arch)
    assert len(kernels) < 130  # few enough to be ranked on a first call
    chosen = [stage.best.kernel for stage in Registry(kernels).select(problem, arch, built=False).stages]
    assert [kernel.config.family for kernel in chosen] == stages
    for kernel in chosen:  # only the features of the problem
        config = kernel.config
        assert not config.dropout or problem.p_drop
        assert config.mask_form == "none" or problem.mask != "none"
        assert not config.soft_cap or problem.logits_cap
        assert config.paged == (problem.paged and config.family in ("pagedkv", "splitkv", "appendkv"))


def test_large_heads_are_an_error_with_the_sizes_of_tiles() -> None:
    assert OP.portfolio is not None
    with pytest.raises(UnsupportedError, match=r"300 elements of q and k.*256/256"):
        OP.portfolio.list_kernels(get_problem(plan((2, 100, 8, 300), (2, 120, 2, 300))), GPU)
    with pytest.raises(UnsupportedError, match="dq_dk_dv kernels of bf16 are not available on gfx1201"):
        OP.portfolio.list_kernels(get_problem(plan_back(Q, K)), archs.load("gfx1201"))
