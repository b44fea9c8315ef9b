"""Matrix layouts: 'r' for row-major, 'c' for column-major, one letter per matrix."""

from __future__ import annotations

from tilewright.base.errors import UnknownValueError

MAJOR_NAMES = {"r": "RowMajor", "c": "ColumnMajor"}


def major_name(letter: str) -> str:
    """The C++ name of one layout letter."""
    found = MAJOR_NAMES.get(letter)
    if found is None:
        raise UnknownValueError("layout letter", letter, MAJOR_NAMES)
    return found
