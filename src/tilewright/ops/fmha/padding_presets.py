"""Names for the usual combinations of a kernel's four pads."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import choose

PAD_FIELDS = ("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v")
PADS: dict[str, tuple[Any, ...]] = {
    "none": (False, False, 0, 0),  # whole tiles of queries, keys and heads
    "queries": (True, False, 0, 0),  # any number of queries, whole tiles of keys
    "lengths": (True, True, 0, 0),  # any lengths of sequences, heads as large as the tiles
    "vectors": (True, True, 8, 8),  # and smaller heads that are multiples of 8
    "any": (True, True, 1, 1),  # and any smaller heads
    "heads": (False, False, 8, 8),  # smaller heads, for families that always pad lengths
}


def get_padding_preset(name: str) -> tuple[Any, ...]:
    """Return the values of the four fields."""
    return PADS[choose("pads of fmha", name, PADS)]
