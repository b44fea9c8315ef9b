"""How long an attention kernel takes."""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.c_numbers import C_NUMBERS
from tilewright.ops.fmha.features import FEATURES_VERSION, features
from tilewright.ops.fmha.pace import kernel_numbers
from tilewright.ops.fmha.workload import problem_numbers
from tilewright.ops.machine.cost import CostModel, Estimate, Facts
from tilewright.ops.machine.numbers import Number, ceil_div, maximum, minimum, where
from tilewright.ops.machine.tiled import Work, laid_out


def estimate(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """The time of a problem with a kernel: blocks along one side of the scores, steps along the other.

    As `tiled.estimate`, but a mask hides steps, blocks have different numbers of them, and the longest block is a
    bound by itself: one that walks along all keys keeps the others waiting however many units there are.
    """
    by_keys = k.by_keys > 0
    shared = where(k.merged > 0, p.group, 1.0)  # query heads whose rows lie in one tile
    rows = where(by_keys, p.keys, p.queries * shared)
    # Sequences of different lengths: half of the last tile of each is empty, on average.
    tiles_m = where(p.uneven > 0, maximum(1.0, rows / k.block_m + 0.5), ceil_div(rows, k.block_m))
    tiles_n = ceil_div(p.columns, k.block_n)
    tiles = tiles_m * tiles_n * p.sequences * p.heads / shared * p.splits
    steps, longest = _steps(p, k, by_keys, shared)
    work = Work(
        tiles=tiles,
        steps=steps,
        longest=longest,
        stored=p.written_bytes / tiles * arch.memory.store_cost,
        memory_bytes=p.read_bytes + p.written_bytes,
        use_m=rows / (tiles_m * k.block_m),
        use_n=p.columns / (tiles_n * k.block_n),
        use_k=where(by_keys, p.queries, p.keys) / (p.splits * maximum(1.0, longest) * k.block_k),
    )
    return laid_out(work, k, arch)


def _steps(p: Facts, k: Facts, by_keys: Number, shared: Number) -> tuple[Number, Number]:
    """Steps of a block, on average and of the longest.

    A block sees what its rows see together: where an end of the visible range moves from row to row, the range of a
    block is longer by half its rows. Where blocks are shorter than tiles it ends inside a tile, some of it in vain.
    """
    extent = where(by_keys, p.queries, p.keys)
    seen = where(by_keys, p.seen_queries, p.seen_keys)
    moving = where(by_keys, p.moving_queries, p.moving_keys)
    rows = minimum(k.block_m / shared, where(by_keys, p.keys, p.queries))
    most = where(by_keys, p.longest_queries, p.longest_keys)
    whole = ceil_div(extent, k.block_k)
    vain = moving / 2 * maximum(0.0, 1.0 - rows / k.block_k)
    visible = minimum(whole, (seen + moving * (rows - 1) / 2) * whole / extent + vain)
    visible = maximum(visible, minimum(1.0, seen * rows))  # whoever sees anything takes a step
    # Parts are whole tiles: with fewer tiles than parts, some parts have none.
    return visible / p.splits, ceil_div(ceil_div(most, k.block_k), p.splits)


COST = CostModel(
    problem_numbers=problem_numbers,
    kernel_numbers=kernel_numbers,
    estimate=estimate,
    features=features,
    features_version=FEATURES_VERSION,
    in_c=C_NUMBERS,
)
