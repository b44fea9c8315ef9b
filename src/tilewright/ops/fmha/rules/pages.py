"""Pages of batch_prefill: P447 to P450. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.rules.examples import PREFILL
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples, since, until

_NEWER = "2026-06"
_GROUP: dict[str, Any] = {**PREFILL, "mode": "group"}
_EARLIER: dict[str, Any] = {"page_size": 1, "kv_layout": "linear", "page_lookup": "list"}
_PREFILL = TileRules({"family": "batch_prefill"}, _GROUP)


@until(_NEWER)
@examples(good={"page_size": 1}, bad={"page_size": 16})
@_PREFILL.rule("P447", "pages-of-newer-headers", "compiler", ("page_size", "kv_layout", "page_lookup"))
def check_newer_pages(config: Config, arch: Arch) -> Rejection | None:
    """Pages with more than one token, in vectors, or in a table need CK Tile's headers since 2026-06.

    Why: earlier headers look up each token in a list.
    Fix: use newer headers (TILEWRIGHT_CK), a list of single tokens, or pagedkv."""
    for name, earlier in _EARLIER.items():
        value = getattr(config, name)
        if value != earlier:
            message = f"{name} = {value} needs CK Tile's headers since 2026-06, not {arch.ck.generation}"
            return Rejection(message, name, earlier)
    return None


@since(_NEWER)
@examples(good={"page_size": 16}, bad={"page_size": 48})
@_PREFILL.rule("P448", "page-size", "compiler", ("page_size",))
def check_page_size(config: Config, arch: Arch) -> Rejection | None:
    """page_size must be a power of two.

    Why: the page of a token and its place there are the high and the low bits of its index
    (BlockFmhaBatchPrefillPipelineProblem in pipeline/block_fmha_pipeline_problem.hpp asserts it).
    Fix: use 1, 16, 64, 128 or 1024, which caches of servers have, or another power of two."""
    size = config.page_size
    if size & (size - 1) == 0:
        return None
    return Rejection(f"page_size is {size}, must be a power of two", "page_size", 1 << size.bit_length() - 1)


@since(_NEWER)
@examples(good={"page_size": 128}, bad={"page_size": 128, "block": (128, 96, 32, 128, 32, 128)})
@_PREFILL.tile_rule("P449", "tile-across-pages", "device", ("page_size",))
def check_tile_in_page(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """A page with at least n0 tokens must have a multiple of n0 tokens.

    Why: in such pages the address of a key tile is that of one page; a tile that crosses into the next one is read from
    behind the first (rebase_k_window in pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp).
    Fix: use an n0 that divides page_size, such as a power of two."""
    if config.page_size < tile.n0 or config.page_size % tile.n0 == 0:
        return None
    message = f"pages of {config.page_size} tokens are not a multiple of the tile's {tile.n0}"
    return Rejection(message, "block", tile.replace(n0=1 << tile.n0.bit_length() - 1))


@since(_NEWER)
@examples(good={"page_size": 16, "kv_layout": "vectorised"}, bad={"page_size": 4, "kv_layout": "vectorised"})
@_PREFILL.rule("P450", "part-of-a-vector", "compiler", ("page_size", "dtype"), when={"kv_layout": "vectorised"})
def check_vectors(config: Config, arch: Arch) -> Rejection | None:
    """Vectorised pages must have a multiple of the tokens in 16 bytes.

    Why: a vector of values has one element of consecutive tokens
    (BlockFmhaBatchPrefillPipelineProblem in pipeline/block_fmha_pipeline_problem.hpp asserts it).
    Fix: use pages of 16 or more tokens."""
    vector = 16 // find_dtype(DTYPES[config.dtype].qkv).storage_bytes
    if config.page_size % vector == 0:
        return None
    message = f"pages of {config.page_size} tokens are not a multiple of the {vector} elements of a vector"
    return Rejection(message, "page_size", 16)
