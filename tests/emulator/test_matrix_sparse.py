"""Sparse matrix instructions on both engines, compared with products that are computed one element at a time.

The places of elements are those of AMD's matrix instruction calculator (gfx942, gfx1201), and of CK Tile's
sparse_gfx9.hpp of 2026-06 for the instructions that only gfx950 has.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from assembled import assemble
from launched import launch
from matrix_model import d_place, each_engine, make_group, put, run_matrix, value
from test_matrix_assembled import complaints

from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.launch import Counters, Extent, Mode
from tilewright.emulator.matrix.shapes import BITS, MatrixShape
from tilewright.emulator.matrix.sparse import list_sparse_shapes

GPUS = {"gfx942": "cdna3", "gfx950": "cdna4", "gfx1201": "rdna4"}
SHAPES = {gpu: list_sparse_shapes(family) for gpu, family in GPUS.items()}
WAVES = 2
# Two different places among four, the first before the second.
CHOICES = list(itertools.combinations(range(4), 2))
each_shape = pytest.mark.parametrize(("gpu", "name"), [(gpu, name) for gpu in GPUS for name in SHAPES[gpu]])


def has_double_k(shape: MatrixShape) -> bool:
    return (shape.a, shape.k * shape.m) in {("f16", 1024), ("bf16", 1024), ("i8", 2048), ("fp8", 2048), ("bf8", 2048)}


def find_a(shape: MatrixShape, row: int, k: int, slot: int) -> tuple[int, int]:
    """Element and lane of the first or second of the two elements of A that stand for k to k + 3."""
    if shape.layout == "mfma":
        per_lane = shape.k * shape.m // 64
        return k % per_lane // 2 + slot, row + shape.m * (k // per_lane)
    if shape.a in ("f16", "bf16"):
        return 2 * (2 * (k // 16) + k // 4 % 2) + slot, 16 * (k // 8 % 2) + row
    half = shape.k // 2
    return k % half // 2 + slot, 16 * (k // half) + row


def find_b(shape: MatrixShape, column: int, k: int) -> tuple[int, int]:
    """Element and lane of an element of B."""
    per_lane = shape.k * shape.n // shape.lanes
    if shape.layout == "mfma" and has_double_k(shape):
        part, rest = divmod(k, shape.k // 2)
        return part * (per_lane // 2) + rest % (per_lane // 2), column + shape.n * (rest // (per_lane // 2))
    if shape.layout == "wmma12" and shape.a in ("f16", "bf16"):
        return 8 * (k // 16) + k % 8, 16 * (k // 8 % 2) + column
    return k % per_lane, column + shape.n * (k // per_lane)


@cache
def list_codes(kind: str, bits: int, largest: int) -> list[tuple[int, float]]:
    """Bit patterns whose products and sums are exact, and their values."""
    pairs = [(code, value(kind, code)) for code in range(1 << bits)]
    return [(code, number) for code, number in pairs if abs(number) <= largest and (2 * number) % 1 == 0]


@cache
def make_run(*given: object, **settings: object) -> SparseRun:
    """A run for the tests of both engines."""
    return SparseRun(*given, **settings)  # type: ignore[arg-type]


class SparseRun:
    """Random matrices in registers: D from 0, A from 40, B from 60, places in 80."""

    def __init__(
        self, gpu: str, name: str, seed: int, first_bit: int = 0, signed: str = "ii", near: tuple[int, ...] = (0,)
    ) -> None:
        """Numbers of C are near one of `near`."""
        self.gpu, self.name, self.shape = gpu, name, SHAPES[gpu][name]
        self.random = np.random.default_rng(seed)
        shape = self.shape
        # Sums of bf16 have 8 bits.
        self.largest = 1 if shape.result == "bf16" else 4
        self.kinds = [self.spell(kind, sign) for kind, sign in zip((shape.a, shape.b), signed, strict=True)]
        self.group = make_group(100, WAVES, shape.lanes)
        m, n, k = shape.m, shape.n, shape.k
        self.b = np.zeros((WAVES, k, n))
        self.a = np.zeros((WAVES, m, k))
        self.c = self.random.integers(-9, 10, (WAVES, m, n)) + self.random.choice(near, (WAVES, m, n))
        registers = self.group.vgprs
        registers[80] = self.random.integers(0, 2**32, (WAVES, shape.lanes), np.uint32) & ~self.mask(first_bit)
        for row, column in itertools.product(range(m), range(n)):
            element, lane = d_place(shape, 0, row, column)
            put(registers[:16], element, lane, self.encode(self.c[:, row, column]), BITS[shape.result])
        for row, at in itertools.product(range(m), range(0, k, 4)):
            self.put_pair(row, at, first_bit)
        for column, at in itertools.product(range(n), range(k)):
            element, lane = find_b(shape, column, at)
            self.b[:, at, column] = self.put_random(registers[60:68], element, lane, self.kinds[1])

    def spell(self, kind: str, sign: str) -> str:
        if kind in ("fp8", "bf8"):
            return f"{kind}_{'fnuz' if self.gpu == 'gfx942' else 'ocp'}"
        return kind.replace("iu", sign)

    def encode(self, numbers: np.ndarray) -> np.ndarray:
        if self.shape.result == "i32":
            return numbers.astype(np.uint32)
        if self.shape.result == "f16":
            return numbers.astype(np.float16).view(np.uint16)
        return numbers.astype(np.float32).view(np.uint32) >> (16 if self.shape.result == "bf16" else 0)

    def decode(self, element: int, lane: int) -> np.ndarray:
        result = self.shape.result
        if BITS[result] == 32:
            return self.group.vgprs[element, :, lane].view(np.int32 if result == "i32" else np.float32)
        words = self.group.vgprs[element // 2, :, lane] >> np.uint32(16 * (element % 2)) & np.uint32(0xFFFF)
        return np.array([value(result, int(word)) for word in words])

    def mask(self, first_bit: int) -> np.uint32:
        bits = self.shape.k * self.shape.m // self.shape.lanes
        return np.uint32(((1 << bits) - 1) << first_bit)

    def put_pair(self, row: int, at: int, first_bit: int) -> None:
        """Two of the elements `at` to `at` + 3 of a row of A."""
        places = [CHOICES[self.random.integers(len(CHOICES))] for _ in range(WAVES)]
        for slot in (0, 1):
            element, lane = find_a(self.shape, row, at, slot)
            numbers = self.put_random(self.group.vgprs[40:44], element, lane, self.kinds[0])
            for wave, pair in enumerate(places):
                self.a[wave, row, at + pair[slot]] = numbers[wave]
                self.group.vgprs[80, wave, lane] |= np.uint32(pair[slot] << first_bit + 2 * element)

    def put_random(self, registers: np.ndarray, element: int, lane: int, kind: str) -> np.ndarray:
        codes = list_codes(kind, BITS[self.shape.a], self.largest)
        picked = [codes[self.random.integers(len(codes))] for _ in range(WAVES)]
        put(registers, element, lane, np.array([code for code, _ in picked]), BITS[self.shape.a])
        return np.array([number for _, number in picked])

    def step(self, engine: str, **modifiers: object) -> np.ndarray:
        """Return D. The registers are unchanged."""
        shape = self.shape
        counts = (shape.count_registers("d"), shape.count_registers("a"), shape.count_registers("b"), 1)
        operands = tuple(Operand("v", at, count) for at, count in zip((0, 40, 60, 80), counts, strict=True))
        instruction = Instruction(0, 8, self.name, operands, self.name, "", modifiers)  # type: ignore[arg-type]
        before, self.group.batch.counters = self.group.vgprs.copy(), Counters()
        run_matrix(engine, instruction, self.gpu, self.group)
        out = np.empty((WAVES, shape.m, shape.n))
        for row, column in itertools.product(range(shape.m), range(shape.n)):
            out[:, row, column] = self.decode(*d_place(shape, 0, row, column))
        self.group.vgprs[...] = before
        return out


def signs(shape: MatrixShape, signed: str) -> dict[str, object]:
    return {"neg_lo": (int(signed[0] == "i"), int(signed[1] == "i"), 0)} if shape.a.startswith("iu") else {}


@each_shape
@each_engine
def test_products_of_random_matrices(engine: str, gpu: str, name: str) -> None:
    run = make_run(gpu, name, 1)
    assert np.array_equal(run.step(engine, **signs(run.shape, "ii")), run.a @ run.b + run.c)
    if engine == "numpy":  # `test_a_kernel` has the native engine's count
        assert run.group.batch.counters.matrix_flops == WAVES * 2 * run.shape.m * run.shape.n * run.shape.k


@pytest.mark.parametrize("signed", ["uu", "iu", "ui"])
@pytest.mark.parametrize("name", ["v_swmmac_i32_16x16x32_iu8", "v_swmmac_i32_16x16x64_iu4"])
@each_engine
def test_neg_lo_tells_the_signs_of_integers(engine: str, name: str, signed: str) -> None:
    run = make_run("gfx1201", name, 5, signed=signed)
    assert np.array_equal(run.step(engine, **signs(run.shape, signed)), run.a @ run.b + run.c)


@pytest.mark.parametrize("name", [name for name, shape in SHAPES["gfx1201"].items() if shape.result == "i32"])
@each_engine
def test_clamp_stops_at_the_limits(engine: str, name: str) -> None:
    """Without it, sums wrap."""
    limits = np.iinfo(np.int32)
    run = make_run("gfx1201", name, 6, near=(limits.min + 9, limits.max - 9))
    total = (run.a @ run.b).astype(np.int64) + run.c
    assert (total < limits.min).any() and (total > limits.max).any()
    modifiers = signs(run.shape, "ii")
    assert np.array_equal(run.step(engine, **modifiers, clamp=True), np.clip(total, limits.min, limits.max))
    assert np.array_equal(run.step(engine, **modifiers), total.astype(np.int32))


@pytest.mark.parametrize(
    ("gpu", "name", "modifiers", "first_bit"),
    [
        *(("gfx942", "v_smfmac_f32_16x16x32_f16", {"abid": abid}, 8 * abid) for abid in (1, 2, 3)),
        ("gfx942", "v_smfmac_f32_16x16x32_bf16", {"cbsz": 1, "abid": 3}, 0),
        ("gfx942", "v_smfmac_i32_32x32x32_i8", {"abid": 1}, 16),
        ("gfx950", "v_smfmac_i32_32x32x32_i8", {"abid": 1}, 16),
        ("gfx942", "v_smfmac_f32_16x16x64_fp8_bf8", {"cbsz": 1, "abid": 1}, 0),
        ("gfx950", "v_smfmac_f32_16x16x64_f16", {"cbsz": 1, "abid": 1}, 0),
        ("gfx1201", "v_swmmac_f32_16x16x32_f16", {"index_key": 1}, 16),
        ("gfx1201", "v_swmmac_f16_16x16x32_f16", {"index_key": 0}, 0),
        ("gfx1201", "v_swmmac_f32_16x16x32_bf8_fp8", {"index_key": 1}, 16),
    ],
)
@each_engine
def test_a_modifier_chooses_the_set_of_places(
    engine: str, gpu: str, name: str, modifiers: dict[str, int], first_bit: int
) -> None:
    """SMFMAC: abid, if cbsz is 0. SWMMAC: index_key."""
    run = make_run(gpu, name, 2, first_bit)
    assert np.array_equal(run.step(engine, **modifiers), run.a @ run.b + run.c)


@each_engine
def test_elements_without_a_place_have_no_effect(engine: str) -> None:
    """An infinity in B at k = 3, and A's first row takes 0 and 1 of the first four: only other rows may meet it."""
    name = "v_smfmac_f32_16x16x32_f16"
    run = SparseRun("gfx942", name, 3)
    element, lane = find_b(run.shape, 0, 3)
    run.group.vgprs[60 + element // 2, :, lane] = 0x7C00 << 16 * (element % 2) | 0x3C00 << 16 * (1 - element % 2)
    places = run.group.vgprs[80]
    places[:, :16] = places[:, :16] & ~np.uint32(0xF) | np.uint32(0b0100)  # of all rows, lanes 0 to 15
    assert np.isfinite(run.step(engine)).all()
    run = SparseRun("gfx942", name, 3)
    run.group.vgprs[60 + element // 2, :, lane] = 0x7C00 << 16 * (element % 2)
    run.group.vgprs[80, :, :16] |= np.uint32(0xC)  # the second element of every row is at 3
    assert not np.isfinite(run.step(engine)[:, :, 0]).all()


@pytest.mark.parametrize(
    ("gpu", "name", "modifiers", "said"),
    [
        ("gfx942", "v_smfmac_f32_16x16x64_fp8_fp8", {"abid": 2}, "abid:2"),
        ("gfx942", "v_smfmac_f32_16x16x64_fp8_fp8", {"blgp": 1}, "blgp"),
        ("gfx950", "v_smfmac_f32_16x16x64_f16", {"abid": 1}, "abid:1"),
        ("gfx1201", "v_swmmac_f32_16x16x32_f16", {"index_key": 2}, "index_key:2"),
        ("gfx1201", "v_swmmac_f32_16x16x32_f16", {"neg_lo": (1, 0, 0)}, "neg_lo"),
        ("gfx1201", "v_swmmac_i32_16x16x64_iu4", {"index_key": 0}, "index_key"),
    ],
)
@pytest.mark.parametrize("engine", ["numpy", "native"])  # found before anything runs
def test_other_forms_are_faults(engine: str, gpu: str, name: str, modifiers: dict[str, object], said: str) -> None:
    with pytest.raises(UnknownInstructionFault, match=said):
        make_run(gpu, name, 1).step(engine, **modifiers)


def count_flops(gpu: str, name: str) -> int:
    """Operations of one wave that runs every instruction of a GPU once, and one of them twice."""
    shapes = [*SHAPES[gpu].values(), SHAPES[gpu][name]]
    return sum(2 * shape.m * shape.n * shape.k for shape in shapes)


@pytest.mark.compile
@pytest.mark.parametrize("gpu", GPUS)
def test_the_assembler_knows_the_same_instructions(gpu: str) -> None:
    start = "v_swmmac" if gpu == "gfx1201" else "v_smfmac"
    kinds = ["f16", "bf16", "i8", "iu8", "iu4", *(f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8"))]
    sizes = [f"{size}x{size}x{k}" for size in (16, 32) for k in (8, 16, 32, 64, 128)]
    results = ("f32", "i32", "f16", "bf16")
    names = [f"{start}_{result}_{size}_{kind}" for result in results for size in sizes for kind in kinds]
    said = complaints(gpu, names)
    assert {name for at, name in enumerate(names) if "too few operands" in said[at]} == set(SHAPES[gpu])


@pytest.mark.compile
@pytest.mark.parametrize("mode", [Mode.FAST, Mode.STRICT])
@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_a_kernel(gpu: str, engine: str, mode: Mode) -> None:
    """All A and B are 1, and each row adds half of k to its 2: assembled, disassembled and run, all names at once."""
    lines = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", "v_mov_b32 v80, 0x44444444", "v_lshlrev_b32 v5, 2, v0"]
    lines += [f"v_mov_b32 v{register}, 0x3c003c00" for register in (*range(40, 44), *range(60, 68))]
    lines += [f"v_mov_b32 v{register}, 2.0" for register in range(16, 20)]
    lines += ["v_smfmac_f32_16x16x32_f16 v[16:19], v[40:41], v[60:63], v80 abid:1", "s_nop 15"]
    for name, shape in SHAPES[gpu].items():
        a, b = shape.count_registers("a"), shape.count_registers("b")
        lines.append(f"{name} v[20:{19 + shape.m * shape.n // 64}], v[40:{39 + a}], v[60:{59 + b}], v80")
    lines += ["s_waitcnt lgkmcnt(0)", "global_store_dword v5, v17, s[8:9]", "s_endpgm"]
    code = assemble("\n".join(lines), gpu, vgprs=100)
    outcome = launch(code, gpu, block=Extent(64), words=64, mode=mode, engine=engine)
    assert (outcome.output.view(np.float32) == 18.0).all()
    assert outcome.counters.matrix_flops == count_flops(gpu, "v_smfmac_f32_16x16x32_f16")


@pytest.mark.compile
@pytest.mark.parametrize("mode", [Mode.FAST, Mode.STRICT])
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_kernel_of_gfx1201(engine: str, mode: Mode) -> None:
    """The same with 32 lanes, and index_key, neg_lo and clamp as LLVM prints them."""
    lines = ["s_load_b64 s[8:9], s[0:1], 0x0", "v_mov_b32 v80, 0x44444444", "v_lshlrev_b32 v5, 2, v0"]
    lines += [f"v_mov_b32 v{register}, 0x3c003c00" for register in (*range(40, 44), *range(60, 68))]
    lines += [f"v_mov_b32 v{register}, 2.0" for register in range(16, 24)]
    lines += ["v_swmmac_f32_16x16x32_f16 v[16:23], v[40:43], v[60:67], v80 index_key:1"]
    for name, shape in SHAPES["gfx1201"].items():
        d, a, b = (shape.count_registers(operand) for operand in ("d", "a", "b"))
        more = " neg_lo:[1,0,0] clamp" if shape.result == "i32" else ""
        lines.append(f"{name} v[24:{23 + d}], v[40:{39 + a}], v[60:{59 + b}], v80{more}")
    lines += ["s_wait_kmcnt 0", "global_store_b32 v5, v17, s[8:9]", "s_endpgm"]
    code = assemble("\n".join(lines), "gfx1201", vgprs=100)
    outcome = launch(code, "gfx1201", block=Extent(32), words=32, mode=mode, engine=engine)
    assert (outcome.output.view(np.float32) == 18.0).all()
    assert outcome.counters.matrix_flops == count_flops("gfx1201", "v_swmmac_f32_16x16x32_f16")
