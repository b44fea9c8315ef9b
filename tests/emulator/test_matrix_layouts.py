"""Every matrix instruction of every GPU: each element of A, B, C and D is where AMD's documents say it is."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from matrix_model import ARCHES, Run, d_place, put, value

from tilewright.emulator.matrix.shapes import F8F6F4, MatrixShape, list_shapes

ENCODING = {"gfx942": "fnuz", "gfx950": "ocp", "gfx1200": "ocp", "gfx1201": "ocp"}


def spelt_kind(kind: str, arch: str) -> str:
    """A format with what this file's model wants to know of it."""
    if kind in ("fp8", "bf8"):
        return f"{kind}_{ENCODING[arch]}"
    return {"iu8": "i8", "iu4": "i4"}.get(kind, kind)


def cases() -> list[tuple[str, str, MatrixShape, dict[str, object]]]:
    """Instructions with the modifiers that they cannot do without; every pair of formats of f8f6f4."""
    found = []
    for arch, facts in ARCHES.items():
        seen = set()
        for name, shape in list_shapes(facts.family).items():
            if (shape, shape.scaled) in seen:
                continue  # another spelling
            seen.add((shape, shape.scaled))
            if shape.layout == "f8f6f4":
                opsel = {"op_sel_hi": (0, 0, 0)} if shape.scaled else {}
                for i, a in enumerate(F8F6F4):
                    for j, b in enumerate(F8F6F4):
                        found.append((arch, name, shape.replace_formats(a, b), {"cbsz": i, "blgp": j, **opsel}))
            else:
                signed = {"neg_lo": (1, 1, 0)} if shape.a in ("iu8", "iu4") else {}
                found.append((arch, name, shape, signed))
    return found


CASES = cases()
IDS = [f"{arch}-{name}-{shape.a}-{shape.b}" for arch, name, shape, _ in CASES]
each_case = pytest.mark.parametrize(("arch", "name", "shape", "modifiers"), CASES, ids=IDS)


@cache
def codes_of_halves(kind: str, arch: str) -> tuple[np.ndarray, np.ndarray]:
    """Bit patterns of multiples of one half between -4 and 4, and their values: products and sums are exact."""
    if kind in ("f32", "xf32", "f64"):
        values = np.arange(-8, 9) / 2
        return values.astype(f"<f{8 if kind == 'f64' else 4}").view("<u8" if kind == "f64" else "<u4"), values
    spelt = spelt_kind(kind, arch)
    bits = 16 if kind in ("f16", "bf16") else 4 if kind in ("iu4", "fp4") else 6 if kind in ("fp6", "bf6") else 8
    pairs = [(code, value(spelt, code)) for code in range(1 << bits)]
    kept = [(code, number) for code, number in pairs if abs(number) <= 4 and (2 * number) % 1 == 0]
    return np.array([code for code, _ in kept]), np.array([number for _, number in kept])


def put_scales(run: Run) -> None:
    for registers in run.scales:
        registers[...] = 127  # 2^0


def result_words(values: np.ndarray, shape: MatrixShape) -> np.ndarray:
    return values.astype(np.int32 if shape.result == "i32" else np.float32).view(np.uint32)


def put_result(run: Run, registers: np.ndarray, values: np.ndarray) -> None:
    """Write C or an expected D, from values [waves, block, row, column]."""
    shape = run.shape
    for block, row, column in np.ndindex(*values.shape[1:]):
        element, lane = d_place(shape, block, row, column)
        numbers = values[:, block, row, column]
        if shape.result == "f64":
            put(registers, element, lane, numbers.astype(np.float64).view(np.uint64), 64)
        elif shape.result in ("f32", "i32"):
            put(registers, element, lane, result_words(numbers, shape), 32)
        else:
            codes = numbers.astype(np.float16).view(np.uint16)
            if shape.result == "bf16":
                word = numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
                codes = (word + 0x7FFF + (word >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
            # RDNA 3 keeps each result in half a register of its own, RDNA 4 two in one.
            put(registers, element * (2 if shape.layout == "wmma11" else 1), lane, codes, 16)


@each_case
def test_random_matrices(arch: str, name: str, shape: MatrixShape, modifiers: dict[str, object]) -> None:
    rng = np.random.default_rng(1)
    run = Run(arch, name, shape, 3, **modifiers)
    matrices = []
    for kind, outer in ((shape.a, shape.m), (shape.b, shape.n)):
        codes, values = codes_of_halves(kind, arch)
        picked = rng.integers(0, len(codes), (3, shape.blocks, outer, shape.k))
        matrices.append((codes[picked], values[picked]))
    run.put_inputs(matrices[0][0], matrices[1][0], shape.a, shape.b)
    put_scales(run)
    c = rng.integers(-9, 10, (3, shape.blocks, shape.m, shape.n)).astype(np.float64)
    put_result(run, run.c, c)
    expected = np.zeros_like(run.d)
    put_result(run, expected, matrices[0][1] @ matrices[1][1].swapaxes(2, 3) + c)
    run.step()
    assert np.array_equal(run.d, expected)
    assert run.group.batch.counters.matrix_flops == 3 * 2 * shape.m * shape.n * shape.k * shape.blocks


@each_case
def test_one_element_of_each_operand(arch: str, name: str, shape: MatrixShape, modifiers: dict[str, object]) -> None:
    """One 1 in A and one in B, elsewhere in every wave: one 1 in D, if they share block and k."""
    rng = np.random.default_rng(2)
    waves = 96
    block = rng.integers(0, shape.blocks, waves)
    row, column = rng.integers(0, shape.m, waves), rng.integers(0, shape.n, waves)
    k = rng.integers(0, shape.k, waves)
    other = np.where(np.arange(waves) % 4 == 0, (k + 1) % shape.k, k)  # every fourth product is zero
    run = Run(arch, name, shape, waves, **modifiers)
    hot = []
    for kind, outer, index, along in ((shape.a, shape.m, row, k), (shape.b, shape.n, column, other)):
        codes, values = codes_of_halves(kind, arch)
        one = codes[np.flatnonzero(values == 1)[0]]
        matrix = np.zeros((waves, shape.blocks, outer, shape.k), codes.dtype)
        matrix[np.arange(waves), block, index, along] = one
        hot.append(matrix)
    run.put_inputs(hot[0], hot[1], shape.a, shape.b)
    put_scales(run)
    product = np.zeros((waves, shape.blocks, shape.m, shape.n))
    met = k == other
    product[np.flatnonzero(met), block[met], row[met], column[met]] = 1
    expected = np.zeros_like(run.d)
    put_result(run, expected, product)
    run.step()
    assert np.array_equal(run.d, expected)


def test_every_instruction_of_the_gpu_files_is_known() -> None:
    for arch in ARCHES.values():
        named = {name for table in arch.mma.values() for name in table.values()}
        assert named
        assert named <= set(list_shapes(arch.family)), arch.name


def test_no_layout_is_left_out() -> None:
    assert {shape.layout for _, _, shape, _ in CASES} == {"mfma", "f8f6f4", "wmma11", "wmma12"}
    assert {arch for arch, *_ in CASES} == set(ARCHES)
