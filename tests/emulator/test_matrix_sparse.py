"""Sparse matrix instructions of gfx942, one element at a time, after AMD's matrix instruction calculator."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from assembled import assemble
from launched import launch
from matrix_model import code_for, d_place, make_group, put, value
from test_matrix_assembled import complaints

from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.launch import Extent, Mode
from tilewright.emulator.matrix import translate
from tilewright.emulator.matrix.shapes import MatrixShape
from tilewright.emulator.matrix.sparse import list_sparse_shapes

GPU = "gfx942"
SHAPES = list_sparse_shapes("cdna3")
WAVES = 2
SPELT = {"fp8": "fp8_fnuz", "bf8": "bf8_fnuz"}
# Two different places among four, the first before the second.
CHOICES = list(itertools.combinations(range(4), 2))
each_shape = pytest.mark.parametrize(("name", "shape"), SHAPES.items(), ids=SHAPES)


def width(kind: str) -> int:
    return 16 if kind in ("f16", "bf16") else 8


def find_place(outer: int, k_size: int, row: int, k: int) -> tuple[int, int]:
    """Element and lane of a row (or column) and k: each lane has 64 / outer-th of k."""
    per_lane = k_size * outer // 64
    return k % per_lane, row + outer * (k // per_lane)


@cache
def list_codes(kind: str) -> list[tuple[int, float]]:
    """Bit patterns whose products and sums are exact, and their values."""
    spelt = SPELT.get(kind, kind)
    pairs = [(code, value(spelt, code)) for code in range(1 << width(kind))]
    return [(code, number) for code, number in pairs if abs(number) <= 4 and (2 * number) % 1 == 0]


class SparseRun:
    """Random matrices in registers: D from 0, A from 40, B from 60, places in 80."""

    def __init__(self, name: str, shape: MatrixShape, seed: int, first_bit: int = 0) -> None:
        self.name, self.shape = name, shape
        self.random = np.random.default_rng(seed)
        self.group = make_group(100, WAVES, 64)
        m, n, k = shape.m, shape.n, shape.k
        self.b = np.zeros((WAVES, k, n))
        self.a = np.zeros((WAVES, m, k))
        self.c = self.random.integers(-9, 10, (WAVES, m, n))
        registers = self.group.vgprs
        registers[80] = self.random.integers(0, 2**32, (WAVES, 64), np.uint32) & ~self.mask(first_bit)
        for row, column in itertools.product(range(m), range(n)):
            element, lane = d_place(shape, 0, row, column)
            kind = np.int32 if shape.result == "i32" else np.float32
            registers[element, :, lane] = self.c[:, row, column].astype(kind).view(np.uint32)
        for row, group in itertools.product(range(m), range(k // 4)):
            self.put_pair(row, group, first_bit)
        for column, at in itertools.product(range(n), range(k)):
            element, lane = find_place(n, k, column, at)
            self.b[:, at, column] = self.put_random(registers[60:64], element, lane, shape.b)

    def mask(self, first_bit: int) -> np.uint32:
        bits = 2 * 64 // width(self.shape.a)
        return np.uint32(((1 << bits) - 1) << first_bit)

    def put_pair(self, row: int, group: int, first_bit: int) -> None:
        """Two of the elements 4 · group to 4 · group + 3 of a row of A."""
        places = [CHOICES[self.random.integers(len(CHOICES))] for _ in range(WAVES)]
        for slot in (0, 1):
            element, lane = find_place(self.shape.m, self.shape.k // 2, row, 2 * group + slot)
            numbers = self.put_random(self.group.vgprs[40:42], element, lane, self.shape.a)
            for wave, pair in enumerate(places):
                self.a[wave, row, 4 * group + pair[slot]] = numbers[wave]
                self.group.vgprs[80, wave, lane] |= np.uint32(pair[slot] << first_bit + 2 * element)

    def put_random(self, registers: np.ndarray, element: int, lane: int, kind: str) -> np.ndarray:
        codes = list_codes(kind)
        picked = [codes[self.random.integers(len(codes))] for _ in range(WAVES)]
        put(registers, element, lane, np.array([code for code, _ in picked]), width(kind))
        return np.array([number for _, number in picked])

    def step(self, **modifiers: object) -> np.ndarray:
        shape = self.shape
        counts = (shape.m * shape.n // 64, 2, 4, 1)
        operands = tuple(Operand("v", at, count) for at, count in zip((0, 40, 60, 80), counts, strict=True))
        instruction = Instruction(0, 8, self.name, operands, self.name, "", modifiers)  # type: ignore[arg-type]
        step = translate(instruction, code_for(GPU))
        assert step is not None
        with np.errstate(all="ignore"):
            step(self.group)
        out = np.empty((WAVES, shape.m, shape.n))
        for row, column in itertools.product(range(shape.m), range(shape.n)):
            element, lane = d_place(shape, 0, row, column)
            kind = np.int32 if shape.result == "i32" else np.float32
            out[:, row, column] = self.group.vgprs[element, :, lane].view(kind)
        return out


@each_shape
def test_products_of_random_matrices(name: str, shape: MatrixShape) -> None:
    run = SparseRun(name, shape, 1)
    assert np.array_equal(run.step(), run.a @ run.b + run.c)
    assert run.group.batch.counters.matrix_flops == WAVES * 2 * shape.m * shape.n * shape.k


@pytest.mark.parametrize(
    ("name", "modifiers", "first_bit"),
    [
        *(("v_smfmac_f32_16x16x32_f16", {"abid": abid}, 8 * abid) for abid in (1, 2, 3)),
        ("v_smfmac_f32_16x16x32_bf16", {"cbsz": 1, "abid": 3}, 0),
        ("v_smfmac_i32_32x32x32_i8", {"abid": 1}, 16),
        ("v_smfmac_f32_16x16x64_fp8_bf8", {"cbsz": 1, "abid": 1}, 0),
    ],
)
def test_abid_chooses_the_set_of_places_if_cbsz_is_zero(name: str, modifiers: dict[str, int], first_bit: int) -> None:
    run = SparseRun(name, SHAPES[name], 2, first_bit)
    assert np.array_equal(run.step(**modifiers), run.a @ run.b + run.c)


def test_elements_without_a_place_have_no_effect() -> None:
    """An infinity in B at k = 3, and A's first row takes 0 and 1 of the first four: only other rows may meet it."""
    name = "v_smfmac_f32_16x16x32_f16"
    run = SparseRun(name, SHAPES[name], 3)
    element, lane = find_place(16, 32, 0, 3)
    run.group.vgprs[60 + element // 2, :, lane] = 0x7C00 << 16 * (element % 2) | 0x3C00 << 16 * (1 - element % 2)
    places = run.group.vgprs[80]
    places[:, :16] = places[:, :16] & ~np.uint32(0xF) | np.uint32(0b0100)  # of all rows, lanes 0 to 15
    assert np.isfinite(run.step()).all()
    run = SparseRun(name, SHAPES[name], 3)
    run.group.vgprs[60 + element // 2, :, lane] = 0x7C00 << 16 * (element % 2)
    run.group.vgprs[80, :, :16] |= np.uint32(0xC)  # the second element of every row is at 3
    assert not np.isfinite(run.step()[:, :, 0]).all()


def test_other_forms_are_faults() -> None:
    run = SparseRun("v_smfmac_f32_16x16x64_fp8_fp8", SHAPES["v_smfmac_f32_16x16x64_fp8_fp8"], 4)
    with pytest.raises(UnknownInstructionFault, match="abid:2"):
        run.step(abid=2)
    with pytest.raises(UnknownInstructionFault, match="blgp"):
        run.step(blgp=1)


@pytest.mark.compile
def test_the_assembler_knows_the_same_instructions() -> None:
    kinds = ["f16", "bf16", "i8", *(f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8"))]
    sizes = [f"{size}x{size}x{k}" for size in (16, 32) for k in (8, 16, 32, 64, 128)]
    names = [f"v_smfmac_{result}_{size}_{kind}" for result in ("f32", "i32") for size in sizes for kind in kinds]
    said = complaints(GPU, names)
    assert {name for at, name in enumerate(names) if "too few operands" in said[at]} == set(SHAPES)


@pytest.mark.compile
@pytest.mark.parametrize("mode", [Mode.FAST, Mode.STRICT])
def test_a_kernel(mode: Mode) -> None:
    """All A and B are 1, and each row adds half of k to its 2: assembled, disassembled and run, all names at once."""
    lines = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", "v_mov_b32 v80, 0x44444444", "v_lshlrev_b32 v5, 2, v0"]
    lines += [f"v_mov_b32 v{register}, 0x3c003c00" for register in (*range(40, 42), *range(60, 64))]
    lines += [f"v_mov_b32 v{register}, 2.0" for register in range(16, 20)]
    lines += ["v_smfmac_f32_16x16x32_f16 v[16:19], v[40:41], v[60:63], v80 abid:1", "s_nop 15"]
    for name, shape in SHAPES.items():
        lines.append(f"{name} v[20:{19 + shape.m * shape.n // 64}], v[40:41], v[60:63], v80")
    lines += ["s_waitcnt lgkmcnt(0)", "global_store_dword v5, v17, s[8:9]", "s_endpgm"]
    outcome = launch(assemble("\n".join(lines), GPU, vgprs=100), GPU, block=Extent(64), words=64, mode=mode)
    assert (outcome.output.view(np.float32) == 18.0).all()
