"""The LDS of a forward kernel, as CK Tile computes it. File names are below ck_tile/ops/fmha/pipeline/.

Sizes are those of CK Tile's tensor descriptors: one more than the offset of the last element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha import ck_probes
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import get_tile

if TYPE_CHECKING:
    from tilewright.ops.fmha.config import Config

# tile_fmha_shape.hpp, ceil_to_qualified_tile_length: head sizes whose queries are loaded as a larger tile.
_LOADED_AS = {96: 128, 160: 256}
_VECTOR = 16  # bytes of the widest load, and of a pack in LDS
_SCORE = 4  # bytes of a score, fp32
SUMS_IN_VECTOR = _VECTOR // _SCORE  # in the widest load
# block_fmha_pipeline_qr_ks_vs_async_trload.hpp: with this m0 or more, keys and values have two buffers each.
PREFILL_ROWS = 128


@dataclass(frozen=True, slots=True)
class ForwardSizes:
    """The inputs of the formulas below."""

    tile: Mapping[str, int]
    waves: tuple[int, ...]
    mma: tuple[int, ...]
    size: int  # bytes of an element of queries, keys and values
    size_p: int
    wave_size: int
    banks: int
    direct: int  # bytes that a lane copies asynchronously to LDS
    dropout: bool
    v3_probabilities: bool  # whether v3 reserves LDS for them

    @property
    def waves_in_block(self) -> int:
        return max(_compute_product(self.waves[:3]), _compute_product(self.waves[3:6]))

    @property
    def threads(self) -> int:
        return self.waves_in_block * self.wave_size

    @property
    def pack(self) -> int:
        """Elements of one vector."""
        return _VECTOR // self.size


def get_sizes(config: Config, arch: Arch, *, dropout: bool = False) -> ForwardSizes:
    types = DTYPES[config.dtype]
    cdna4 = arch.name == "gfx950"
    return ForwardSizes(
        tile=get_tile(config),
        waves=config.waves,
        mma=config.mma,
        size=_element_bytes(types.qkv),
        size_p=_element_bytes(types.p),
        wave_size=arch.wave_size,
        banks=64 if cdna4 else 32,  # core/arch/arch.hpp, get_n_lds_banks
        direct=16 if cdna4 else 4,  # GetAlignmentK of the policies with asynchronous copies
        dropout=dropout,
        v3_probabilities=arch.ck.get_form(ck_probes.V3) == "own",
    )


def _element_bytes(name: str) -> int:
    return find_dtype(name).bits // 8


def _compute_product(numbers: tuple[int, ...]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def loaded_hdim(hdim_q: int) -> int:
    """The tile width with which queries of a head size are loaded."""
    return _LOADED_AS.get(hdim_q, hdim_q)


def v_pixels(facts: ForwardSizes) -> int:
    """Elements of a value tile that one thread loads."""
    return facts.tile["n1"] * facts.tile["k1"] // facts.threads


def v_pack(facts: ForwardSizes) -> int:
    """Elements in a pack of values in LDS (block_fmha_pipeline_qx_ks_vs_custom_policy.hpp, GetSmemKPackV)."""
    return min(v_pixels(facts), facts.pack)


def count_packed_elements(rows: int, columns: int, pack: int) -> int:
    """Return the elements of a tile in LDS: columns of packs, one pack apart, without a gap after the last one."""
    return (columns // pack - 1) * (rows + 1) * pack + rows * pack


def _count_k_elements(facts: ForwardSizes, rows: int) -> int:
    """MakeKLdsBlockDescriptor and MakeQLdsBlockDescriptor."""
    return count_packed_elements(rows, facts.tile["k0"], facts.pack)


def _count_v_elements(facts: ForwardSizes) -> int:
    """GetSingleSmemElementSpaceSize, SingleVSize: rows across all banks, one pack apart."""
    pixels = facts.banks * 4 // facts.size
    per_row = pixels // facts.pack
    return facts.tile["k1"] // facts.pack * (facts.tile["n1"] // per_row) * (pixels + facts.pack)


def count_v_buffer_elements(facts: ForwardSizes, buffers: int) -> int:
    """MakeVLdsBlockDescriptor with a number of buffers, without a gap after the last row."""
    pixels, pack = facts.banks * 4 // facts.size, v_pack(facts)
    per_row = pixels // pack
    lines = facts.tile["k1"] // pack * (facts.tile["n1"] // per_row)
    return buffers * lines * (pixels + pack) - pack


def count_async_loads(facts: ForwardSizes) -> int:
    """Return the asynchronous copies of one key tile: NumIssues of the policies that have them."""
    lanes_per_row = facts.tile["k1"] * facts.size // facts.direct
    groups = facts.wave_size // lanes_per_row if lanes_per_row else 0
    return facts.tile["n0"] // (groups * facts.waves_in_block) if groups else 0


def _count_async_k_elements(facts: ForwardSizes) -> int:
    """GetSingleSmemElementSpaceSize, SingleKSize with AsyncCopy."""
    line = facts.wave_size * facts.direct // facts.size + facts.pack
    return count_async_loads(facts) * facts.waves_in_block * line


def _compute_dropout_lds(facts: ForwardSizes) -> int:
    """GetSmemSizeDropout: a byte for each score of one step, and one more row."""
    return (facts.waves[0] * facts.mma[0] + 1) * facts.mma[1] if facts.dropout else 0


def _compute_qr_lds(facts: ForwardSizes) -> int:
    """block_fmha_pipeline_qx_ks_vs_custom_policy.hpp, GetSmemSize: keys, values and random numbers share a buffer."""
    return max(
        max(_count_k_elements(facts, facts.tile["n0"]), _count_v_elements(facts)) * facts.size,
        _compute_dropout_lds(facts),
    )


def _compute_qr_async_lds(facts: ForwardSizes) -> int:
    """The same with AsyncCopy: three buffers, and a separate one for random numbers."""
    return 3 * max(_count_async_k_elements(facts), _count_v_elements(facts)) * facts.size + _compute_dropout_lds(facts)


def _compute_qs_lds(facts: ForwardSizes) -> int:
    """block_fmha_pipeline_qs_ks_vs_default_policy.hpp: also a query tile.

    GetSmemSizeDropout is called there without the argument that selects one of its two forms, and returns 0.
    """
    queries = -(-_count_k_elements(facts, facts.tile["m0"]) * facts.size // 16) * 16
    keys = _count_k_elements(facts, facts.tile["n0"]) * facts.size
    return max(queries + keys, count_v_buffer_elements(facts, 1) * facts.size)


def _compute_qr_whole_k_lds(facts: ForwardSizes) -> int:
    """block_fmha_pipeline_qr_ks_vs_whole_k_prefetch_default_policy.hpp, GetSmemSize: two tiles each."""
    tile, pack = facts.tile, 8 // facts.size
    vector = min(facts.pack, tile["n0"] * tile["k0"] // facts.threads) or 1
    buffer = tile["k0"] * tile["n0"] + tile["k0"] * pack // vector
    last = (tile["k0"] // vector - 1) * (tile["n0"] * vector + pack) + tile["n0"] * vector
    keys, values = (buffer + last) * facts.size, count_v_buffer_elements(facts, 2) * facts.size
    difference = keys // 2 - values // 2
    exclusive = -(-difference // 64) * 64 if difference > 0 else 0
    return exclusive + max(keys - exclusive, values, _compute_dropout_lds(facts))


def count_drawn_rows(facts: ForwardSizes) -> int:
    """Return the score rows for which random numbers are drawn at once: MIterPerWarp of block/block_dropout.hpp."""
    rows = facts.waves[0] * facts.mma[0]
    return 2 * rows if facts.mma[0] == 16 and facts.tile["m0"] > rows else rows


def get_dropout_room(facts: ForwardSizes, pipeline: str) -> tuple[int, int]:
    """Return the LDS that random numbers need (MakeRandValLdsBlockDescriptor), and the LDS reserved for them."""
    rows, columns = count_drawn_rows(facts), facts.mma[1] // 8
    needed = (columns - 1) * (rows + 1) * 8 + rows * 8
    if pipeline == "qr_async":
        return needed, _compute_dropout_lds(facts)
    return needed, _BY_PIPELINE[pipeline](facts)


def _compute_qr_async_trload_lds(facts: ForwardSizes) -> int:
    """block_fmha_pipeline_qr_ks_vs_async_trload_policy.hpp, and fmha_fwd_kernel.hpp for the four arrays."""
    tile = facts.tile
    whole = loaded_hdim(tile["hdim_q"])
    values = tile["n0"] * tile["n1"] * facts.size
    if tile["m0"] >= PREFILL_ROWS:
        return 2 * (tile["n0"] * whole * facts.size + values)
    queries, keys = tile["m0"] * whole * facts.size, tile["n0"] * tile["k0"] * facts.size
    scores = count_packed_elements(tile["m0"], tile["n0"], SUMS_IN_VECTOR) * _SCORE
    return max(queries, keys + values + (scores if facts.waves[1] > 1 else 0))


def _compute_v3_lds(facts: ForwardSizes) -> int:
    """block_fmha_fwd_v3_pipeline.hpp, GetSmemSize: four buffers of keys or values; before 2026 also probabilities."""
    buffers = 4 * max(_count_async_k_elements(facts), _count_v_elements(facts)) * facts.size
    if not facts.v3_probabilities:
        return buffers
    rows = facts.tile["m0"] * facts.size_p
    return max(rows * facts.tile["n1"], buffers + rows * facts.tile["n0"])


_BY_PIPELINE: Mapping[str, Callable[[ForwardSizes], int]] = {
    "qr": _compute_qr_lds,
    "qr_async": _compute_qr_async_lds,
    "qr_async_trload": _compute_qr_async_trload_lds,
    "qr_whole_k": _compute_qr_whole_k_lds,
    "qs": _compute_qs_lds,
    "v3": _compute_v3_lds,
}


def compute_pipeline_lds(config: Config, pipeline: str, arch: Arch) -> int:
    """The LDS of one work-group with the policy of a forward pipeline; 0 for a config with an invalid tile."""
    facts = get_sizes(config, arch, dropout=config.dropout)
    formula = _BY_PIPELINE.get(pipeline)
    if formula is None or not facts.tile or len(facts.waves) != 6 or len(facts.mma) != 6 or not _has_loads(facts):
        return 0
    return formula(facts)


def _has_loads(facts: ForwardSizes) -> bool:
    """Whether each thread loads at least one element; if not, CK Tile divides by zero, and a rule rejects it."""
    return facts.threads > 0 and v_pixels(facts) > 0
