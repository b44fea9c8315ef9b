"""Problems that test the edge cases of a kernel, small enough for an emulated device.

All of them use the kernel's features, since these are compiled in: problems differ in lengths, windows, heads, layout,
head sizes, parts, pages, and in all numbers that kernels take at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import gcd, sqrt
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.fit import FIT_RULES
from tilewright.ops.fmha.kind import AttentionKind, find_kind, query_tile_rows
from tilewright.ops.fmha.problem import LAYOUTS, Problem
from tilewright.ops.rule import is_legal

_SAME = (
    *("bias", "lse", "sink", "v_layout", "rotary", "bias_gradient", "deterministic", "store_randval", "static_quant"),
    *("kv_layout", "page_lookup"),
)
# Visible keys: mask, keys before the diagonal, keys after it. Windows are smaller than a tile and larger than one, so
# that tiles begin, end and are completely inside of them. One window hides nothing.
_WINDOWS = (
    *(("bottom_right", -1, 0), ("top_left", 70, 2), ("bottom_right", 7, 5), ("top_left", -1, 0)),
    *(("bottom_right", 19, 67), ("top_left", 19, 0), ("top_left", -1, -1), ("bottom_right", 40, -1)),
)
# Query heads, key heads, sequences, and whole key tiles: fewer tiles where there are many heads.
# Kernels without a mask take little time: there most of the time is spent on the tensors.
_HEADS = (
    ((2, 1, 1, 2), (4, 2, 2, 0), (1, 1, 3, 1), (3, 1, 1, 0), (1, 1, 1, 3)),
    ((2, 2, 2, 2), (4, 2, 2, 0), (1, 1, 3, 3), (3, 1, 2, 1), (1, 1, 1, 2)),
)
_MORE_SEQUENCES = 2  # of a group than of a batch
# Numbers that kernels take at run time: a kernel that ignores one, or takes one for another, is wrong in some trial.
_SCALES = (0.75, 1.0, 1.25)  # times the usual one
_CAPS = (8.0, 5.0)
_P_DROPS = (0.2, 0.4)
_SEEDS = ((1234, 8), (3 << 40 | 5, 5 << 36 | 4))  # of dropout, and offsets: small, and with more than 32 bits
# scale_p and scale_o. With the second pair, probabilities fill the range of fp8, as in models.
_QUANT_SCALES = ((0.5, 0.75), (64.0, 1 / 96))
_SPARE_PAGES = 3
_SINK_STEP = 2
_MOST_HEADS = 24
_LEAST = (16, 28)  # the least trials without a mask, and with one
_GOLDEN, _SILVER = (5**0.5 - 1) / 2, 2**0.5 - 1  # their multiples modulo 1 are far apart


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Return the trials that the kernel supports, those that find most errors first.

    Every second one has sinks, if the kernel takes them.
    """
    found: dict[Problem, None] = {}
    for number, values in enumerate(_generate_values(config)):
        with_sinks = "sink_logits" in find_kind(config).inputs and number % _SINK_STEP == 1
        filled = [_fill_values(config, each, len(found)) for each in _list_simpler(config, values)]
        problems = (
            Problem(**{**each, **more})
            for more in (({"sink_logits": True}, {}) if with_sinks else ({},))
            for each in filled
        )
        fitting = (problem for problem in problems if is_legal(FIT_RULES, config, problem, arch))
        found |= dict.fromkeys(islice(fitting, 1))
    return tuple(found)


def _list_simpler(config: Config, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values, then simpler ones for kernels without pads: whole tiles, and the head sizes of the tiles."""
    rows = query_tile_rows(config)
    columns = config.tile.get("n0", rows)
    queries, keys = (-(-values[name] // tile) * tile for name, tile in (("seqlen_q", rows), ("seqlen_k", columns)))
    plain = {name: value for name, value in values.items() if not name.startswith("hdim")}
    for each in (values, plain):
        yield each
        yield {**each, "seqlen_q": queries}
        yield {**each, "seqlen_k": keys}
        yield {**each, "seqlen_q": queries, "seqlen_k": keys}


def _generate_values(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the values of each trial: lengths, windows, heads and layouts change, so that most pairs of them occur.

    Each trial has other lengths: an error in a lane's check of its row or column is found only by a length that ends
    there. Single rows and columns are cheap.
    """
    windows = list(_list_windows(config))
    shapes = [*_list_edges(config), *_list_head_sizes(config), *find_kind(config).list_trial_values(config)]
    shapes += [{}] * (_LEAST[config.mask_form != "none"] - len(shapes))
    for number, shape in enumerate(shapes):
        heads, kv_heads, batch, tiles = _choose_counts(config, number)
        yield {
            **_choose_lengths(config, number, tiles),
            **windows[number % len(windows)],
            **{"heads": heads, "kv_heads": kv_heads, "layout": LAYOUTS[number // 3 % 2], "batch": batch},
            **shape,
        }


def _choose_counts(config: Config, number: int) -> tuple[int, int, int, int]:
    """Return query heads, key heads, sequences and key tiles."""
    table = _HEADS[config.mask_form != "none"]
    return table[number % len(table)]


def _choose_lengths(config: Config, number: int, tiles: int) -> dict[str, int]:
    """Return queries of one or two tiles, and keys of `tiles` and one more, whose ends are spread over a tile."""
    rows = query_tile_rows(config)
    columns = config.tile.get("n0", rows)
    queries = (rows if number % 3 == 1 else 0) + _pick_spread_number(rows, number, _GOLDEN)
    keys = tiles * columns + _pick_spread_number(columns, number, _SILVER)
    return {"seqlen_q": min(queries, config.max_seqlen_q or queries), "seqlen_k": keys}


def _pick_spread_number(size: int, number: int, ratio: float) -> int:
    """Return a number from 1 to `size`: all numbers occur before one repeats, and successive ones are far apart."""
    step = min((step for step in range(1, size + 1) if gcd(step, size) == 1), key=lambda step: abs(step - ratio * size))
    return 1 + number * step % size


def _list_edges(config: Config) -> Iterator[dict[str, int]]:
    """Yield queries and keys: several tiles, whole and partial, and single tokens; with masks, also around a tile.

    Seven tiles, because a kernel that divides a work-group's index corrects a quotient with an error of one. The heads
    are so many that the square of a sequence's stride has more than 32 bits, unless these are too many for a trial.
    """
    rows = query_tile_rows(config)
    columns = config.tile.get("n0", rows)
    most = config.max_seqlen_q or 7 * rows
    edges = [(rows + 17, 2 * columns + 5), (2 * rows, columns), (1, 1)]
    if config.mask_form != "none":
        edges += [
            (2 * rows, 3 * columns),
            (17, columns + 1),
            (rows, columns),
            (rows - 1, columns - 1),
            (rows + 1, 17),
            (1, 2 * columns + 1),
        ]
    many = min(7 * rows - 5, most)
    heads = -(-(1 << 16) // (many * (config.hdim_v or config.hdim_q)))
    yield {
        "seqlen_q": many,
        "seqlen_k": 3,
        "heads": heads if 3 <= heads <= _MOST_HEADS else 3,
        "kv_heads": 1,
        "batch": 1,
    }
    for queries, keys in edges:
        yield {"seqlen_q": max(min(queries, most), 1), "seqlen_k": max(keys, 1)}


def _list_windows(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the masks that the kernel supports; one without values if it has none."""
    if config.mask_form == "none":
        yield {}
        return
    for mask, left, right in _WINDOWS:
        forms = {"any", "window" if left >= 0 and right >= 0 else "causal" if left < 0 else "any"}
        if config.mask_form in forms:
            yield {"mask": mask, "window_left": left, "window_right": right}


def _list_head_sizes(config: Config) -> Iterator[dict[str, int]]:
    """Yield head sizes below those of the tiles, of those that the kernel pads."""
    q, v = config.hdim_q or config.hdim_v, config.hdim_v or config.hdim_q
    pads_q, pads_v = config.pad_hdim_q > 0, config.pad_hdim_v > 0
    yield from ({"hdim_q": max(q - less * pads_q, 8), "hdim_v": max(v - less * pads_v, 8)} for less in (8, 1, 24))
    yield {"hdim_q": 8, "hdim_v": v}


def _fill_values(config: Config, values: dict[str, Any], number: int) -> dict[str, Any]:
    """Add the values that the kernel is compiled for, and numbers that differ from those of the trial before."""
    kind = find_kind(config)
    filled: dict[str, Any] = {
        **{name: getattr(config, name) for name in ("family", "mode", "dtype")},
        **{name: getattr(config, name) for name in _SAME if kind.has_field(name)},
        **{"hdim_q": config.hdim_q or config.hdim_v, "hdim_v": config.hdim_v or config.hdim_q},
        **{"batch": 2, "heads": 1},
        **_choose_numbers(config, number),
        **values,
    }
    filled = {**kind.fill_trial(config, filled), **filled}
    if config.mode == "group":
        filled = _group_sequences(filled)
    return _add_spare_pages(kind, filled) if number % 2 else filled


def _choose_numbers(config: Config, number: int) -> dict[str, Any]:
    """Return the numbers that a kernel takes at run time, others in successive trials."""
    kind = find_kind(config)
    numbers: dict[str, Any] = {}
    if kind.has_scores:
        numbers["scale"] = _SCALES[number % len(_SCALES)] / sqrt(config.hdim_q)
    if config.soft_cap:
        numbers["logits_cap"] = _CAPS[number % len(_CAPS)]
    if config.dropout or ("p_drop" in kind.keeps and not kind.has_field("dropout")):
        seed, offset = _SEEDS[number % len(_SEEDS)]
        numbers |= {"p_drop": _P_DROPS[number // 2 % len(_P_DROPS)], "drop_seed": seed, "drop_offset": offset}
    if config.static_quant:
        numbers["scale_p"], numbers["scale_o"] = _QUANT_SCALES[number % len(_QUANT_SCALES)]
    return numbers


def _add_spare_pages(kind: AttentionKind, values: dict[str, Any]) -> dict[str, Any]:
    """Add pages that no sequence uses, if keys are in pages."""
    if not values.get("page_size") and not kind.lists_pages:
        return values
    spare = _SPARE_PAGES + values["batch"] * -(-values["seqlen_k"] // values.get("page_size", 1))
    listed = kind.lists_pages and values.get("page_lookup") == "list"
    return {**values, "pages": spare, **({"listed_pages": spare} if listed else {})}


def _group_sequences(values: dict[str, Any]) -> dict[str, Any]:
    """Add totals for sequences of different lengths.

    The longest is as in batch mode, one has a single query and no key, and the others together half of the longest.
    """
    totals, batch = {}, values["batch"] + _MORE_SEQUENCES
    for name in ("q", "k"):
        longest = values[f"seqlen_{name}"]
        room = max(longest // 2 + 1, batch - 1)
        totals[f"total_{name}"] = min(longest + room, longest * batch)
    return {**values, "batch": batch, **totals}
