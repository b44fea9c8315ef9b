"""Random problems that are larger than the trials, to find out whether an unnoticed mutation is harmless."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.dispatch.plan import get_execution
from tilewright.ops import fits
from tilewright.ops.grouped_conv.implicit_gemm import channel_units
from tilewright.ops.kernel import Kernel
from tilewright.ops.norm.problem import STRIDES

COUNT = 24
# Operations of one problem: up to half a second on the emulated device.
MAX_FLOPS = 3e8
_MAX_DRAWS = 4000  # some kernels' rules reject most draws

# Draws values of some fields, for a config and one of its trials.
Draw = Callable[[Any, Any, random.Random], dict[str, Any]]


def draw_larger_problems(kernel: Kernel, count: int = COUNT) -> tuple[Any, ...]:
    """Draw problems that the kernel's rules accept: the same ones each time, the largest last."""
    rng = random.Random(kernel.slug)
    trials = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))
    found: dict[Any, None] = {}
    for _ in range(_MAX_DRAWS):
        if len(found) == count:
            break
        trial = rng.choice(trials)
        try:
            problem = dataclasses.replace(trial, **_DRAW_BY_OP[kernel.op](kernel.config, trial, rng))
        except InvalidValueError:
            continue
        fitting = problem.flops <= MAX_FLOPS and not fits(kernel.config, problem, kernel.arch)
        if fitting and problem not in trials:
            found[problem] = None
    return tuple(sorted(found, key=lambda problem: problem.flops))


def _draw_gemm(config: Any, _: Any, rng: random.Random) -> dict[str, Any]:
    """Draw a GEMM with one to dozens of tiles in both directions, whole or not, and with any strides."""
    block = config.block
    m, n = _draw_size(rng, block.m), _draw_size(rng, block.n)
    k_batch = rng.choice((1, 2, 3, 4, 5, 6)) if config.split_k else 1
    k = rng.choice((block.k * rng.randint(1, 24), rng.randint(1, 10 * block.k) // 8 * 8 or 8)) * k_batch
    line_a, line_b = k if config.layout[0] == "r" else m, n if config.layout[1] == "r" else k
    gaps = rng.choice(((0, 0, 0), tuple(8 * rng.randint(0, 40) for _ in range(3))))
    return {
        **{"m": m, "n": n, "k": k, "k_batch": k_batch},
        **{"stride_a": line_a + gaps[0], "stride_c": n + gaps[2]},
        "stride_b": line_b + (0 if config.variant == "preshuffle" else gaps[1]),
        "batch": rng.randint(1, 6) if config.variant == "batched" else 1,
    }


def _draw_size(rng: random.Random, tile: int) -> int:
    """Draw a size of one to dozens of tiles, mostly few: whole tiles, vectors or single elements."""
    tiles = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 23, 33, 45))
    return max(tile * tiles - rng.choice((0, 0, 8 * rng.randint(0, tile // 8), rng.randint(0, tile - 1))), 1)


def _draw_conv(config: Any, _: Any, rng: random.Random) -> dict[str, Any]:
    """Draw a convolution with any filter, stride, dilation and pads, and with many vectors of channels."""
    unit_c, unit_k = channel_units(config)
    groups = rng.choice((1, 1, 2, 3, 5)) * config.merge_groups

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(config.ndim))

    max_size = {1: 150, 2: 24, 3: 9}[config.ndim]
    values: dict[str, Any] = {
        **{"n": rng.randint(1, 6), "g": groups, "input_size": each(*range(1, max_size))},
        "c": groups if config.specialization == "filter3x3" else unit_c * rng.randint(1, 24) * groups,
        "k": unit_k * rng.randint(1, 24) * groups,
    }
    if config.split_k:
        values["k_batch"] = rng.randint(1, 6)
    if config.specialization == "default" and not config.explicit_gemm:
        values |= {
            **{"filter_size": each(1, 2, 3, 3, 4, 5), "stride": each(1, 1, 2, 3, 4), "dilation": each(1, 1, 2, 3)},
            **{"left_pad": each(0, 0, 1, 2, 3), "right_pad": each(0, 0, 1, 2, 4)},
        }
    return values


def _draw_fmha(config: Any, trial: Any, rng: random.Random) -> dict[str, Any]:
    """Draw other lengths, heads and windows for a trial, and keep its features."""
    tile = config.tile
    rows, columns = tile.get("m0", 64), tile.get("n0", 64)
    queries, keys = rng.randint(1, 6 * rows), rng.randint(1, 7 * columns)
    if config.max_seqlen_q:
        queries = min(queries, config.max_seqlen_q)
    shared = rng.randint(1, 3)
    batch = rng.randint(1, 5)
    values: dict[str, Any] = {
        **{"seqlen_q": queries, "seqlen_k": keys, "batch": batch, "layout": rng.choice(("bshd", "bhsd"))},
        **{"kv_heads": shared, "heads": shared * rng.randint(1, 4), "scale": rng.choice((0.0, 0.37))},
        **{"pages": 0, "listed_pages": 0},  # as many as these lengths need
    }
    if trial.mode == "group":
        values |= {"total_q": rng.randint(queries, queries * batch), "total_k": rng.randint(keys, keys * batch)}
        values["layout"] = trial.layout
    if trial.mask != "none" and config.mask_form in ("any", "window"):
        values |= {"window_left": rng.choice((-1, 0, 3, 33, 100)), "window_right": rng.choice((-1, 0, 1, 17, 64))}
    if config.family == "appendkv":
        values["seqlen_new"] = rng.randint(1, min(keys, 3 * columns))
    if trial.num_splits > 1:
        values["num_splits"] = rng.randint(2, 8)
    if trial.dq_parts > 1 or config.deterministic:
        values["dq_parts"] = max(-(-keys // columns), 1)
    return values


def _draw_norm(config: Any, trial: Any, rng: random.Random) -> dict[str, Any]:
    """Draw other numbers of rows and columns, and gaps between rows."""
    vectors = rng.randint(1, (3 if config.two_pass else 1) * config.columns // config.vector)
    columns = vectors * config.vector if config.pad else config.columns * rng.randint(1, 2)
    strides = {name: columns + config.vector * rng.randint(0, 3) for name in STRIDES.values()}
    return {"rows": rng.randint(1, 5 * config.rows), "columns": columns, "epsilon": rng.choice((0.0, 1e-3)), **strides}


def _draw_scaled(config: Any, _: Any, rng: random.Random) -> dict[str, Any]:
    """Draw a product with one to dozens of tiles in both directions, whole or not, and with gaps between lines."""
    block = config.block
    m, n = _draw_size(rng, block.m), _draw_size(rng, block.n)
    k = rng.choice((block.k * rng.randint(1, 24), rng.randint(1, 10 * block.k) // 16 * 16 or 16))
    line_a, line_b = k if config.layout[0] == "r" else m, n if config.layout[1] == "r" else k
    gaps = rng.choice(((0, 0, 0), tuple(16 * rng.randint(0, 20) for _ in range(3))))
    strides = {"stride_a": line_a + gaps[0], "stride_b": line_b + gaps[1], "stride_c": n + gaps[2]}
    return {"m": m, "n": n, "k": k, **strides}


def _draw_grouped(config: Any, trial: Any, rng: random.Random) -> dict[str, Any]:
    """Draw other sizes and numbers of groups for a trial, and gaps between lines."""
    groups = rng.randint(1, 9 if trial.ragged in ("m", "n") else 4)
    return {**_draw_scaled(config, trial, rng), "groups": groups}


def _draw_topk(config: Any, _: Any, rng: random.Random) -> dict[str, Any]:
    """Draw other numbers of rows, experts and results, and gaps between rows."""
    experts = config.vector * rng.randint(1, config.experts // config.vector)
    stride = experts + config.vector * rng.randint(0, 3)
    return {"rows": rng.randint(1, 50), "experts": experts, "k": rng.randint(1, min(16, experts)), "stride_x": stride}


def _draw_sorting(config: Any, _: Any, rng: random.Random) -> dict[str, Any]:
    """Draw other numbers of tokens and experts, and other blocks."""
    experts = rng.randint(1, 200 // config.tile)
    k = rng.randint(1, min(8, experts))
    return {"tokens": rng.randint(1, 100), "experts": experts, "k": k, "unit": rng.choice((1, 3, 16, 64))}


_DRAW_BY_OP: dict[str, Draw] = {
    "gemm": _draw_gemm,
    "gemm_quant": _draw_scaled,
    "grouped_conv": _draw_conv,
    "grouped_gemm": _draw_grouped,
    "fmha": _draw_fmha,
    "moe_sorting": _draw_sorting,
    "norm": _draw_norm,
    "topk": _draw_topk,
}


def format_problem(problem: Any) -> str:
    """Format the fields that differ from their defaults in one line."""
    fields: Sequence[dataclasses.Field[Any]] = dataclasses.fields(problem)
    values = {f.name: getattr(problem, f.name) for f in fields}
    defaults = {f.name: f.default for f in fields}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value != defaults[name])
