"""Names of kinds for rules and estimates."""

from __future__ import annotations

from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import get_tile
from tilewright.ops.fmha.kinds import KINDS

FORWARD, PAGEDKV, SPLITKV, COMBINE = "forward", "pagedkv", "splitkv", "combine"
APPENDKV, BATCH_PREFILL = "appendkv", "batch_prefill"
DOT_DO_O, DQ_DK_DV, CONVERT_DQ = "dot_do_o", "dq_dk_dv", "convert_dq"
BACKWARD = "backward"
SCORING = (FORWARD, PAGEDKV, SPLITKV, BATCH_PREFILL, DQ_DK_DV)
FAMILIES = {kind.name: kind for kind in KINDS}
USED = {kind.name: kind.fields for kind in KINDS}

__all__ = ["BACKWARD", "DTYPES", "FAMILIES", "USED", "get_tile"]
