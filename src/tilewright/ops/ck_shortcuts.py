"""A header for ops on CK Tile: cheaper ways to the same answers, see the header itself."""

from __future__ import annotations

from pathlib import Path

NAME = "tilewright_ck_shortcuts.hpp"
# For the `support` of an op; `NAME` is then the first of its `headers`.
SUPPORT = {NAME: Path(__file__).with_suffix(".hpp")}
