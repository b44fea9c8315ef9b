"""Every operation of the table, in the engine in C and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from edge_values import edge_values, same
from isa_in_c import numpy_type
from native_records import KEPT, LANES, bits64, run_scalar, run_vector

from tilewright.emulator.isa.float_functions import flush_subnormals
from tilewright.emulator.isa.numpy_form import make_function
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.native.generate import handler_numbers

pytestmark = pytest.mark.compile

VECTOR_COUNT, SCALAR_COUNT = 32 * LANES, 512
FLUSHING = 0  # FLOAT_MODE: subnormal numbers become zero


def sources_of(operation: Operation, count: int) -> list[np.ndarray]:
    made = []
    for place, kind in enumerate(operation.sources):
        if kind == "scc":
            made.append(edge_values(np.dtype(np.bool_), count, place).astype(np.uint32))
        else:
            made.append(edge_values(numpy_type(kind), count, seed=100 + place))
    # NumPy's own conversions leave some signalling NaNs signalling, which the CPU does not.
    return made if "pack16" not in operation.expression else [quieted(values) for values in made]


def quieted(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), values.dtype.type(np.nan), values) if values.dtype.kind == "f" else values


def expected(
    operation: Operation, sources: list[np.ndarray], flush: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Result, and SCC or mask, by NumPy."""
    if flush and "class_" not in operation.expression:
        sources = [flush_subnormals(values) if values.dtype.kind == "f" else values for values in sources]
    with np.errstate(all="ignore"):
        result = None
        if operation.expression:
            computed = make_function(operation.expression, len(sources))(*sources)
            result = np.broadcast_to(computed, sources[0].shape).astype(numpy_type(operation.result))
        other = operation.scc or operation.second
        flag = make_function(other, len(sources), "r")(*sources, result) if other else None
        if flush and result is not None and result.dtype.kind == "f":
            result = flush_subnormals(result)
    return result, flag


def check_result(operation: Operation, got: np.ndarray, want: np.ndarray) -> None:
    if want.dtype.kind == "f":
        got_values = got.astype(f"u{want.itemsize}").view(want.dtype)
        wrong = ~same(got_values, want)
    else:
        wrong = got.astype(f"u{want.itemsize}").astype(np.uint64) != bits64(want)
    if want.itemsize < 8:
        got = got.astype(np.uint32).astype(np.uint64)
    places = np.flatnonzero(wrong)
    assert not places.size, (
        f"{operation}: {places.size} differ, first {places[0]}: {got[places[0]]:#x}, {want[places[0]]}"
    )


@pytest.mark.parametrize("mode", [KEPT, FLUSHING], ids=["kept", "flushing"])
def test_vector_operations(mode: int) -> None:
    for operation in handler_numbers()[0]:
        if mode == FLUSHING and not any(
            kind.endswith(("f16", "f32", "f64")) for kind in (*operation.sources, operation.result)
        ):
            continue
        sources = sources_of(operation, VECTOR_COUNT)
        got, flags = run_vector(operation, sources, mode)
        want, second = expected(operation, sources, mode == FLUSHING)
        assert want is not None
        if operation.result == "mask":
            assert (flags == want).all(), operation
            continue
        check_result(operation, got, want)
        if second is not None:
            assert (flags == second).all(), operation


@pytest.mark.parametrize("mode", [KEPT, FLUSHING], ids=["kept", "flushing"])
def test_scalar_operations(mode: int) -> None:
    for operation in handler_numbers()[1]:
        sources = sources_of(operation, SCALAR_COUNT)
        got, scc = run_scalar(operation, sources, mode)
        want, flag = expected(operation, sources, mode == FLUSHING)
        if want is not None:
            check_result(operation, got, want)
        if flag is not None:
            assert (scc == flag).all(), operation
