"""A header for ops on CK Tile with cheaper versions of some of its functions; see the header itself."""

from __future__ import annotations

from pathlib import Path

NAME = "tilewright_ck_shortcuts.hpp"
# For the `support` of an op; `NAME` is then the first of its `headers`.
SUPPORT = {NAME: Path(__file__).with_suffix(".hpp")}
