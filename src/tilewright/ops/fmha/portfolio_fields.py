"""The kernels from which functions for arrays select: those with the features and the head sizes of a problem.

Features that a problem does not need are left out, because kernels without them are faster. Tiles are those of the
GPU's own table whose heads are as small as possible.
"""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.base.errors import UnsupportedError
from tilewright.ops.fmha.arch_table import TileShape, list_tiles
from tilewright.ops.fmha.kind import AttentionKind, get_tile
from tilewright.ops.fmha.kinds import COMPUTATIONS
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.stages import list_stages
from tilewright.ops.portfolio import Fields

# Head sizes of tiles that are tried: the smallest may have no legal kernel with all features.
_HEAD_SIZES = 2
# rules/caches.py, P443: the least log2 of the parts that combine merges.
_LEAST_LOG_SPLITS = 3
_SAME = (
    "mode",
    "dtype",
    "sink",
    "bias",
    "lse",
    "static_quant",
    "v_layout",
    "rotary",
    "bias_gradient",
    "deterministic",
    "kv_layout",
    "page_lookup",
)


def list_portfolio_fields(problem: Problem, arch: Arch) -> tuple[Fields, ...]:
    """The fields of the kernels of each stage, for each suitable tile."""
    kinds = list_stages(problem)
    if not kinds:
        kind = COMPUTATIONS[problem.family]
        assert isinstance(kind, AttentionKind), "a computation without stages is that of a kernel"
        kinds = (kind,)
    return tuple(
        {"family": kind.name, "tile": tile.text, **_describe_features(kind, problem)}
        for kind in kinds
        for tile in _find_tiles(kind, problem, arch)
    )


def _describe_features(kind: AttentionKind, problem: Problem) -> Fields:
    features = {
        **{name: getattr(problem, name) for name in _SAME},
        "mask_form": "none" if problem.mask == "none" else "any",
        "soft_cap": problem.logits_cap > 0,
        "dropout": problem.p_drop > 0 or problem.store_randval,
        "store_randval": problem.store_randval,
        "paged": problem.paged,
        "page_size": problem.page_size,
        "log_max_splits": max(_LEAST_LOG_SPLITS, (problem.num_splits - 1).bit_length()),
        "skip_min_seqlen_q": problem.min_seqlen_q > 0,
    }
    return {name: value for name, value in features.items() if name in ("mode", "dtype") or kind.has_field(name)}


def _find_tiles(kind: AttentionKind, problem: Problem, arch: Arch) -> list[TileShape]:
    """The tiles of a GPU with the smallest heads that hold those of a problem."""
    known = [tile for tile in list_tiles(arch) if (tile.family, tile.dtype) == (kind.name, problem.dtype)]
    if not known:
        others = dict.fromkeys(tile.dtype for tile in list_tiles(arch) if tile.family == kind.name)
        raise UnsupportedError(
            f"{kind.name} kernels of {problem.dtype} are not available on {arch.name}. Types with tiles in its table: "
            f"{', '.join(others) or 'none'}"
        )
    sizes = {tile: _get_head_sizes(tile) for tile in known}
    usable = {
        (hdim_q, hdim_v)
        for hdim_q, hdim_v in sizes.values()
        if (hdim_q or problem.hdim_q) >= problem.hdim_q and (hdim_v or problem.hdim_v) >= problem.hdim_v
    }
    if not usable:
        held = ", ".join(f"{hdim_q}/{hdim_v}" for hdim_q, hdim_v in sorted(set(sizes.values())))
        raise UnsupportedError(
            f"heads have {problem.hdim_q} elements of q and k and {problem.hdim_v} of v, which is too large for "
            f"{kind.name} kernels of {problem.dtype} on {arch.name}. Head sizes of their tiles (q and k/v, 0 is any): "
            f"{held}"
        )
    smallest = sorted(usable, key=lambda size: (sum(size), size))[:_HEAD_SIZES]
    return [tile for tile in known if sizes[tile] in smallest]


def _get_head_sizes(tile: TileShape) -> tuple[int, int]:
    """The head sizes of queries and of values; 0 if the kernel has no such tensor."""
    numbers = get_tile(tile)
    return numbers.get("hdim_q", 0), numbers.get("hdim_v", numbers.get("n1", 0))
