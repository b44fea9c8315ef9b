"""The layout of arrays that are operands of a matrix product."""

from __future__ import annotations

from tilewright.ops.array_plan import ArraySpec


def find_layout(matrix: ArraySpec, of_b: bool) -> tuple[str, int] | None:
    """The layout of matrices and the stride of their lines; None if neither rows nor columns are contiguous.

    A matrix of one line may be either. B is then preferably column-major, so that k is contiguous as in A.
    """
    rows, columns = matrix.shape[-2:]
    down, along = matrix.strides[-2:]
    found = []
    if (along == 1 or columns == 1) and (rows == 1 or down >= columns):
        found.append(("r", down if rows > 1 else columns))
    if (down == 1 or rows == 1) and (columns == 1 or along >= rows):
        found.append(("c", along if columns > 1 else rows))
    return found[-1 if of_b else 0] if found else None
