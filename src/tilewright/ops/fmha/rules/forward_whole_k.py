"""The only configs with which the pipeline qr_whole_k gives correct results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import FORWARD
from tilewright.ops.rule import Rejection, rule

# Tested on the emulated gfx942 with masks, bias, ALiBi and dropout. Seven other tiles were all wrong.
_TILE: Mapping[str, Any] = {
    "block": (64, 64, 16, 32, 16, 32),
    "waves": (4, 1, 1, 4, 1, 1),
    "mma": (16, 16, 16, 16, 16, 16),
}
_FORM: Mapping[str, Any] = {**_TILE, "soft_cap": False, "v_layout": "row"}
_TYPES = ("fp16", "bf16")


@rule(
    "P480",
    "whole-k-form",
    reads=("family", "pipeline", "dtype", *_FORM),
    enforced_by="device",
    good={"pipeline": "qr_whole_k", **_TILE},
    bad={"pipeline": "qr_whole_k", **_TILE, "block": (64, 64, 32, 64, 32, 64)},
)
def check_whole_k_form(config: Any, arch: Arch) -> Rejection | None:
    """The pipeline qr_whole_k supports one tile, 16-bit types, v_layout row, no cap, and waves of 64 lanes.

    Why: kernels with other tiles or types, or with a cap, compile and compute wrong results. The cause is not known
    (block_fmha_pipeline_qr_ks_vs_whole_k_prefetch.hpp).

    Fix: use the pipeline qr, or block 64x64x16x32x16x32 with 4 waves along m and mma 16x16x16.
    """
    if config.family != FORWARD or config.pipeline != "qr_whole_k":
        return None
    for name, value in _FORM.items():
        if getattr(config, name) != value:
            return Rejection(
                f"qr_whole_k is correct only with {name} = {value}, not {getattr(config, name)}", name, value
            )
    if config.dtype not in _TYPES or arch.wave_size != 64:
        return Rejection(f"qr_whole_k gives wrong results with {config.dtype} on {arch.name}", "pipeline", "qr")
    return None
