"""Problems that try the edges of a kernel, small enough for an emulated device.

A kernel's features are in all of them, since they are compiled in: problems differ in lengths, windows, heads, layout,
head sizes, parts and pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    APPENDKV,
    BATCH_PREFILL,
    COMBINE,
    FORWARD,
    SPLITKV,
)
from tilewright.ops.fmha.fit import FIT_RULES, query_step
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.uses import USED
from tilewright.ops.rule import violations

_SAME = (
    *("bias", "lse", "sink", "v_layout", "rotary", "bias_gradient", "deterministic", "store_randval", "static_quant"),
)
# What a query sees: mask, keys before the diagonal, keys after it. The last hides nothing.
_WINDOWS = (
    *(("bottom_right", -1, 0), ("top_left", -1, 0), ("top_left", 19, 0), ("bottom_right", 7, 5)),
    *(("bottom_right", 0, 3), ("top_left", 70, 2), ("top_left", -1, -1)),
)
_PARTS = (2, 3, 1, 7, 8, 5)
_SEQUENCES = 3  # of a group


def trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """The problems that the kernel computes, most telling first."""
    found: dict[Problem, None] = {}
    for values in _tried(config):
        problem = Problem(**_completed(config, values))
        if not violations(FIT_RULES, config, problem, arch):
            found[problem] = None
    return tuple(found)


def _tried(config: Config) -> Iterator[dict[str, Any]]:
    lengths = list(_lengths(config))
    windows = list(_windows(config))
    first = lengths[0]
    yield {**first, **windows[0], "heads": 2}
    yield {**lengths[1], **windows[0], "heads": 4, "kv_heads": 2, "layout": "bhsd"}
    yield from ({**first, **window} for window in windows[1:])
    yield from ({**length, **windows[0]} for length in lengths[2:])
    yield from ({**first, **windows[0], **sizes} for sizes in _head_sizes(config))
    yield from ({**first, **windows[0], **other} for other in _others(config))
    yield {**first, **windows[0], "batch": 1, "heads": 3, "kv_heads": 1}
    yield from ({**length, **window} for window in windows[1:] for length in lengths[1:4])


def _lengths(config: Config) -> Iterator[dict[str, int]]:
    """Queries and keys: several tiles, whole ones and not, around a tile, and single ones."""
    rows = query_step(config)
    columns = config.tile.get("n0", rows)
    most = config.max_seqlen_q or 3 * rows
    for queries, keys in (
        *((rows + 17, 2 * columns + 5), (2 * rows, 3 * columns), (17, columns + 1), (1, 1), (rows, columns)),
        *((rows - 1, columns - 1), (rows + 1, 17), (1, 2 * columns + 1), (3 * rows - 5, 3)),
    ):
        yield {"seqlen_q": max(min(queries, most), 1), "seqlen_k": max(keys, 1)}


def _windows(config: Config) -> Iterator[dict[str, Any]]:
    """Masks that the kernel can say; a single one that says nothing where it has none."""
    if config.mask_form == "none":
        yield {}
        return
    for mask, left, right in _WINDOWS:
        bounded = left >= 0 and right >= 0
        if config.mask_form == "any" or (config.mask_form == "window") == bounded:
            yield {"mask": mask, "window_left": left, "window_right": right}


def _head_sizes(config: Config) -> Iterator[dict[str, int]]:
    """Head sizes below those of the tiles."""
    q, v = config.hdim_q or config.hdim_v, config.hdim_v or config.hdim_q
    yield from ({"hdim_q": max(q - less, 8), "hdim_v": max(v - less, 8)} for less in (8, 1, 24))
    yield {"hdim_q": 8, "hdim_v": v}


def _others(config: Config) -> Iterator[dict[str, Any]]:
    """Parts, pages, rotated elements, and random numbers that are stored."""
    if config.family in (SPLITKV, COMBINE):
        yield from ({"num_splits": count} for count in _PARTS[1:])
    if config.family == APPENDKV:
        n0 = config.tile["n0"]
        yield from ({"seqlen_new": new, "seqlen_k": 2 * new + 3} for new in (1, n0, n0 + 1))
        yield {"rotary_dim": max(config.hdim_q // 2, 8)} if config.rotary != "none" else {}
    if config.paged and config.family != BATCH_PREFILL:
        yield {"page_size": 2 * config.tile["n0"]}
    if config.dropout and config.family == FORWARD:
        yield {"store_randval": True}
        yield {"p_drop": 0.0}


def _completed(config: Config, values: dict[str, Any]) -> dict[str, Any]:
    """With what the kernel is compiled for."""
    used = USED[config.family]
    made: dict[str, Any] = {
        **{name: getattr(config, name) for name in ("family", "mode", "dtype")},
        **{name: getattr(config, name) for name in _SAME if name in used},
        **{"hdim_q": config.hdim_q or config.hdim_v, "hdim_v": config.hdim_v or config.hdim_q},
        **{"batch": 2, "heads": 1},
        **values,
    }
    if config.soft_cap:
        made["logits_cap"] = 8.0
    if config.dropout:
        made = {"p_drop": 0.2, "drop_seed": 1234, "drop_offset": 8, **made}
    if config.static_quant:
        made.update(scale_p=0.5, scale_o=0.75)
    if config.family in (SPLITKV, COMBINE):
        made.setdefault("num_splits", 2 if config.uneven_splits or config.log_max_splits else 1)
    if config.family == APPENDKV:
        made.setdefault("seqlen_new", min(made["seqlen_k"], config.tile["n0"] + 3))
    if config.paged:
        made.setdefault("page_size", 1 if config.family == BATCH_PREFILL else config.tile["n0"])
    if config.deterministic and config.pipeline != "trload_qr_qtr_dor":
        made["dq_parts"] = -(-made["seqlen_k"] // config.tile["n0"])
    return _grouped(made) if config.mode == "group" else made


def _grouped(values: dict[str, Any]) -> dict[str, Any]:
    """Sequences of different lengths: the longest as in batch mode, one of half of that, and one with next to nothing:
    a single query, and no key."""
    totals = {}
    for name in ("q", "k"):
        longest = values[f"seqlen_{name}"]
        room = max(longest // 2 + 1, _SEQUENCES - 1)
        totals[f"total_{name}"] = min(longest + room, longest * _SEQUENCES)
    return {**values, "batch": _SEQUENCES, **totals}
