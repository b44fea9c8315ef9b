"""The features for learned models of attention kernels. Changing a name or meaning needs a new FEATURES_VERSION."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number, log2
from tilewright.ops.cost_model.cost import Estimate, Facts
from tilewright.ops.cost_model.estimate_features import compute_estimate_features, compute_hardware_features

FEATURES_VERSION = 1
_SIZES = ("sequences", "heads", "group", "queries", "keys", "splits", "hdim_q", "hdim_v")
_BLOCK = ("block_m", "block_n", "block_k", "waves", "alone", "busiest")
_FLAGS = ("registers", "resident", "mma_m", "by_keys", "merged", "ahead", "in_turn", "masked", "padded")


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the visible share of the keys, the tile, the GPU, and the estimate with its breakdown."""
    return {
        **{f"log_{name}": log2(getattr(p, name)) for name in _SIZES},
        "bits": p.bits,
        "seen": p.seen_keys / p.keys,
        "uneven": p.uneven,
        **{f"log_{name}": log2(getattr(k, name)) for name in _BLOCK},
        "log_lds_bytes": log2(k.lds_bytes + 1),
        **{name: getattr(k, name) for name in _FLAGS},
        **compute_hardware_features(arch),
        **compute_estimate_features(estimate),
    }
