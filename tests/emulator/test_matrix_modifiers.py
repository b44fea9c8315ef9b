"""Modifiers and constants of matrix instructions; what is not known is a fault."""

from __future__ import annotations

import numpy as np
import pytest
from matrix_model import ARCHES, Run, code_for, each_engine, make_group

from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.matrix import translate
from tilewright.emulator.matrix.shapes import list_shapes


def filled(arch: str, name: str, waves: int = 2, **modifiers: object) -> Run:
    """An instruction with small whole numbers in A and B, and C = 0."""
    shape = list_shapes(ARCHES[arch].family)[name]
    run = Run(arch, name, shape, waves, **modifiers)
    rng = np.random.default_rng(3)
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[shape.a]
    run.numbers = []  # type: ignore[attr-defined]
    codes = []
    for outer in (shape.m, shape.n):
        numbers = rng.integers(-8, 9, (waves, shape.blocks, outer, shape.k)).astype(dtype)
        run.numbers.append(numbers.astype(np.float64))  # type: ignore[attr-defined]
        codes.append(numbers.view(f"<u{numbers.itemsize}"))
    run.put_inputs(codes[0], codes[1], shape.a, shape.b)
    return run


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b.swapaxes(2, 3)


def floats(run: Run, registers: np.ndarray) -> np.ndarray:
    return run.words(registers).view(np.float32)


@pytest.mark.parametrize(("cbsz", "abid"), [(0, 0), (1, 0), (1, 1), (2, 3), (4, 9)])
@each_engine
def test_blocks_of_a_are_broadcast(engine: str, cbsz: int, abid: int) -> None:
    run = filled("gfx942", "v_mfma_f32_4x4x4_16b_f16", cbsz=cbsz, abid=abid)
    a, b = run.numbers  # type: ignore[attr-defined]
    used = [block - block % 2**cbsz + abid for block in range(16)]
    run.step(engine=engine)
    assert np.array_equal(floats(run, run.d), product(a[:, used], b))


def choose_quarters(lanes: np.ndarray, blgp: int) -> np.ndarray:
    """What the pattern makes of the 64 lanes on the last axis."""
    quarters = np.split(lanes, 4, axis=-1)
    chosen = {0: (0, 1, 2, 3), 1: (0, 1, 0, 1), 2: (2, 3, 2, 3), 3: (1, 2, 3, 0)}.get(blgp, (blgp - 4,) * 4)
    return np.concatenate([quarters[quarter] for quarter in chosen], axis=-1)


@pytest.mark.parametrize("blgp", range(8))
@each_engine
def test_patterns_of_lanes_of_b(engine: str, blgp: int) -> None:
    """32x32x2 of f32: lane = 32 k + column, so a pattern is a choice among these pairs."""
    run = filled("gfx90a", "v_mfma_f32_32x32x2f32", blgp=blgp)
    a, b = run.numbers  # type: ignore[attr-defined]
    lanes = b[:, 0].swapaxes(1, 2).reshape(2, 64)
    run.step(engine=engine)
    expected = product(a, choose_quarters(lanes, blgp).reshape(2, 2, 32).swapaxes(1, 2)[:, None])
    assert np.array_equal(floats(run, run.d), expected)


@pytest.mark.parametrize("blgp", [0, 3, 6])
@each_engine
def test_patterns_of_lanes_of_integers(engine: str, blgp: int) -> None:
    """A is 1, and the four bytes of a lane of B are the same: a column of 32x32x8 has two lanes."""
    run = Run("gfx90a", "v_mfma_i32_32x32x8i8", list_shapes("cdna2")["v_mfma_i32_32x32x8i8"], 1, blgp=blgp)
    numbers = np.random.default_rng(8).integers(0, 100, 64)
    run.a[...], run.b[...] = 0x01010101, numbers * 0x01010101
    run.step(engine=engine)
    expected = 4 * choose_quarters(numbers, blgp).reshape(2, 32).sum(axis=0)
    assert np.array_equal(run.words(run.d)[0, 0], np.broadcast_to(expected, (32, 32)))


@pytest.mark.parametrize("signs", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
@each_engine
def test_f64_signs(engine: str, signs: tuple[int, int, int]) -> None:
    run = filled("gfx942", "v_mfma_f64_16x16x4_f64", neg=signs)
    a, b = run.numbers  # type: ignore[attr-defined]
    run.c[1::2] = np.float64(3).view(np.uint64) >> np.uint64(32)
    run.step(engine=engine)
    expected = product((-1) ** signs[0] * a, (-1) ** signs[1] * b) + (-1) ** signs[2] * 3.0
    words = run.d.astype(np.uint64)
    got = (words[0::2] | words[1::2] << np.uint64(32)).view(np.float64)
    for row in range(16):
        for column in range(16):
            assert np.array_equal(got[row // 4, :, 16 * (row % 4) + column], expected[:, 0, row, column])


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@each_engine
def test_wmma_signs(engine: str, arch: str) -> None:
    """neg_lo is for elements in lower halves (even k), neg_hi for upper ones; of C they are sign and absolute value."""
    run = filled(arch, "v_wmma_f32_16x16x16_f16", neg_lo=(1, 0, 1), neg_hi=(0, 1, 1))
    a, b = run.numbers  # type: ignore[attr-defined]
    run.c[0::2], run.c[1::2] = np.float32(-5).view(np.uint32), np.float32(5).view(np.uint32)
    even, odd = (-1.0) ** np.arange(1, 17), (-1.0) ** np.arange(16)
    run.step(engine=engine)
    assert np.array_equal(floats(run, run.d), product(a * even, b * odd) - 5)


@pytest.mark.parametrize("high", [0, 1])
@pytest.mark.parametrize("result", ["f16", "bf16"])
@each_engine
def test_16_bit_results_of_rdna3_fill_one_half(engine: str, high: int, result: str) -> None:
    name = f"v_wmma_{result}_16x16x16_{result}"
    run = Run("gfx1100", name, list_shapes("rdna3")[name], 2, op_sel=(0, 0, high))
    one = 0x3C00 if result == "f16" else 0x3F80
    two = 0x4000  # of both formats
    run.d[...] = 0xDEADBEEF
    run.a[...] = run.b[...] = one | one << 16
    run.c[...] = two << 16 * high
    run.step(engine=engine)
    eighteen = 0x4C80 if result == "f16" else 0x4190
    expected = eighteen << 16 | 0xBEEF if high else 0xDEAD0000 | eighteen
    assert (run.d == expected).all()


@pytest.mark.parametrize("name", ["v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"])
@pytest.mark.parametrize(("cbsz", "one"), [(0, 0x38), (2, 0x08), (4, 0x2)])
def test_scales(name: str, cbsz: int, one: int) -> None:
    """All ones in A and B. Every row of A has another scale for each 32 along k, and one byte is chosen of four."""
    kind = {0: "fp8", 2: "fp6", 4: "fp4"}[cbsz]
    shape = list_shapes("cdna4")[name].replace_formats(kind, kind)
    run = Run("gfx950", name, shape, 2, cbsz=cbsz, blgp=cbsz, op_sel=(0, 1, 0), op_sel_hi=(1, 0, 0))
    run.put_inputs(np.full((2, 1, shape.m, shape.k), one), np.full((2, 1, shape.n, shape.k), one), kind, kind)
    rng = np.random.default_rng(4)
    scales = rng.integers(100, 150, (2, 2, shape.k // 32, shape.m)).astype(np.uint32)  # operand, wave, group, row
    other = rng.integers(0, 255, (2, 2, 64)).astype(np.uint32)
    run.scales[0][0] = scales[0].reshape(2, 64) << np.uint32(16) | other[0]
    run.scales[1][0] = scales[1].reshape(2, 64) << np.uint32(8) | other[1]
    run.step()
    powers = 2.0 ** (scales.astype(np.float64) - 127)
    expected = 32 * np.einsum("wgi,wgj->wij", powers[0], powers[1])
    assert np.array_equal(floats(run, run.d)[:, 0], expected.astype(np.float32))


def test_a_scale_that_is_nan() -> None:
    shape = list_shapes("cdna4")["v_mfma_scale_f32_32x32x64_f8f6f4"].replace_formats("fp8", "fp8")
    run = Run("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", shape, 1, op_sel_hi=(0, 0, 0))
    run.scales[0][...] = run.scales[1][...] = 127
    run.scales[0][0, 0, 3] = 255
    run.step()
    got = floats(run, run.d)[0, 0]
    assert np.isnan(got[3]).all()
    assert not np.delete(got, 3, axis=0).any()


def test_scales_beyond_the_range_of_f32_cancel() -> None:
    shape = list_shapes("cdna4")["v_mfma_scale_f32_32x32x64_f8f6f4"].replace_formats("fp8", "fp8")
    run = Run("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", shape, 1, op_sel_hi=(0, 0, 0))
    run.a[...] = run.b[...] = 0x7E7E7E7E  # 448
    run.scales[0][...], run.scales[1][...] = 254, 0
    run.step()
    assert (floats(run, run.d) == 64 * 448 * 448).all()


@pytest.mark.parametrize(("number", "word"), [(0, 0), (1.0, 0x3F800000), (-4.0, 0xC0800000), (7, 7), (-1, 0xFFFFFFFF)])
def test_constants_for_c(number: float, word: int) -> None:
    constant = Operand("const", value=number)
    for name in ("v_mfma_f32_32x32x8_f16", "v_mfma_i32_32x32x16_i8"):
        run = Run("gfx942", name, list_shapes("cdna3")[name], 1)
        run.step(constant)
        if word == 0xFFFFFFFF and "f32" in name:
            assert np.isnan(floats(run, run.d)).all()
        elif number == 7 and "f32" in name:
            assert (run.d == 7).all(), "a whole number is bits, a subnormal float here"
        else:
            assert (run.d == word).all()


def test_d_may_be_c_or_overlap_a() -> None:
    shape = list_shapes("cdna3")["v_mfma_f32_32x32x8_f16"]
    apart = filled("gfx942", "v_mfma_f32_32x32x8_f16")
    apart.c[...] = np.float32(2).view(np.uint32)
    group = make_group(32, 2, 64)
    group.vgprs[:16], group.vgprs[14:16], group.vgprs[16:18] = apart.c, apart.a, apart.b
    operands = tuple(Operand("v", first, count) for first, count in ((0, 16), (14, 2), (16, 2), (0, 16)))
    step = translate(Instruction(0, 8, "v_mfma_f32_32x32x8_f16", operands, ""), code_for("gfx942"))
    assert step is not None
    apart.c[14:16] = apart.a
    apart.step()
    step(group)
    assert np.array_equal(group.vgprs[: shape.count_registers("d")], apart.d)


def test_accumulation_registers_follow_the_others() -> None:
    group = make_group(256 + 32, 1, 64)
    group.vgprs[256:272] = np.float32(3).view(np.uint32)
    operands = (Operand("a", 0, 16), Operand("v", 0, 2), Operand("a", 20, 2), Operand("a", 0, 16))
    step = translate(Instruction(0, 8, "v_mfma_f32_32x32x8_f16", operands, ""), code_for("gfx942"))
    assert step is not None
    group.vgprs[:2], group.vgprs[276:278] = 0x3C003C00, 0x40004000
    step(group)
    assert (group.vgprs[256:272].view(np.float32) == 8 * 2 + 3).all()


def refused(arch: str, name: str, counts: tuple[int, ...], lanes: int | None = None, **modifiers: object) -> str:
    operands = tuple(Operand("v", 32 * number, count) for number, count in enumerate(counts))
    instruction = Instruction(0x40, 8, name, operands, f"{name} …", "", modifiers)  # type: ignore[arg-type]
    with pytest.raises(UnknownInstructionFault) as caught:
        translate(instruction, code_for(arch, lanes))
    assert arch in str(caught.value)
    return str(caught.value)


def test_what_is_not_known_is_a_fault() -> None:
    good = (16, 2, 2, 16)
    assert "smfmac" in refused("gfx942", "v_smfmac_f32_32x32x32_f16", (16, 4, 8, 1))
    assert "smfmac" in refused("gfx90a", "v_smfmac_f32_32x32x16_f16", (16, 2, 4, 1))
    assert "xf32" in refused("gfx950", "v_mfma_f32_16x16x8_xf32", (4, 2, 2, 4))
    assert "cbsz" in refused("gfx942", "v_mfma_f32_32x32x8_f16", good, cbsz=1)
    assert "blgp" in refused("gfx942", "v_mfma_f32_32x32x16_fp8_fp8", good, blgp=1)
    assert "blgp" in refused("gfx90a", "v_mfma_f64_16x16x4f64", (8, 2, 2, 8), blgp=1)
    assert "abid:2" in refused("gfx942", "v_mfma_f32_32x32x4_2b_f16", (32, 2, 2, 32), cbsz=1, abid=2)
    assert "cbsz:5" in refused("gfx950", "v_mfma_f32_32x32x64_f8f6f4", (16, 8, 8, 16), cbsz=5)
    assert "op_sel_hi" in refused("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", (16, 8, 8, 16, 1, 1))
    assert "clamp" in refused("gfx1100", "v_wmma_f32_16x16x16_f16", (8, 8, 8, 8), clamp=True)
    assert "neg_hi" in refused("gfx1100", "v_wmma_i32_16x16x16_iu8", (8, 4, 4, 8), neg_hi=(1, 0, 0))
    assert "neg" in refused("gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", (8, 2, 2, 8), neg_lo=(1, 0, 0))
    assert "64 lanes" in refused("gfx1100", "v_wmma_f32_16x16x16_f16", (4, 8, 8, 4), lanes=64)
    assert "operand A" in refused("gfx942", "v_mfma_f32_32x32x8_f16", (16, 4, 2, 16))
    assert "3 operands" in refused("gfx942", "v_mfma_f32_32x32x8_f16", (16, 2, 2))
    assert "operand A" in refused("gfx950", "v_mfma_f32_32x32x64_f8f6f4", (16, 8, 8, 16), cbsz=4)


def test_other_instructions_are_left_to_others() -> None:
    instruction = Instruction(0, 4, "v_add_f32", (), "v_add_f32")
    assert translate(instruction, code_for("gfx942")) is None


def test_rdna3_wants_both_halves_of_a_wave_alike() -> None:
    run = filled("gfx1100", "v_wmma_f32_16x16x16_f16")
    run.b[3, 1, 20] ^= 1
    with pytest.raises(UnknownInstructionFault, match="differs between lanes"):
        run.step()
