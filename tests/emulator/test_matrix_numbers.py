"""What matrix instructions do with numbers: encodings, rounding, subnormal numbers, integers that overflow."""

from __future__ import annotations

import numpy as np
import pytest
from matrix_model import ARCHES, Run, value

from tilewright.base.errors import UnknownValueError
from tilewright.emulator.formats import FORMATS, encode, find_format, flush_subnormal, make_value_table, unpack
from tilewright.emulator.instruction import Operand
from tilewright.emulator.matrix.shapes import list_shapes

SMALL = ("f16", "bf16", "fp8_fnuz", "bf8_fnuz", "fp8_ocp", "bf8_ocp", "fp6", "bf6", "fp4")


def one_product(arch: str, name: str, a: int, b: int, c: Operand, waves: int = 1, **modifiers: object) -> np.ndarray:
    """D[0][0] of every wave as bits, with A[0][0] = a and B[0][0] = b and nothing else in A and B."""
    run = prepared(arch, name, waves, **modifiers)
    shape = run.shape
    codes_a = np.zeros((waves, shape.blocks, shape.m, shape.k), np.uint64)
    codes_b = np.zeros((waves, shape.blocks, shape.n, shape.k), np.uint64)
    codes_a[:, 0, 0, 0], codes_b[:, 0, 0, 0] = a, b
    run.put_inputs(codes_a, codes_b, shape.a, shape.b)
    run.step(c)
    return run.words(run.d)[:, 0, 0, 0]


def prepared(arch: str, name: str, waves: int, **modifiers: object) -> Run:
    shape = list_shapes(ARCHES[arch].family)[name]
    return Run(arch, name, shape, waves, **modifiers)


def constant(number: float) -> Operand:
    return Operand("const", value=number)


def bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_means_what_its_format_says(name: str) -> None:
    expected = np.array([value(name, code) for code in range(1 << FORMATS[name].bits)], np.float32)
    assert np.array_equal(make_value_table(name), expected, equal_nan=True)
    signs = np.signbit(expected[expected == 0])
    assert np.array_equal(np.signbit(make_value_table(name)[expected == 0]), signs)


@pytest.mark.parametrize("name", SMALL)
def test_encoding_gives_the_pattern_back(name: str) -> None:
    values = make_value_table(name)
    numbers = ~np.isnan(values)
    codes = np.arange(values.size)[numbers]
    assert np.array_equal(encode(values[numbers], FORMATS[name]), codes)


@pytest.mark.parametrize("name", SMALL)
def test_encoding_rounds_to_the_nearest_and_ties_to_even(name: str) -> None:
    values = np.unique(
        make_value_table(name)[np.isfinite(make_value_table(name)) & (make_value_table(name) >= 0)]
    ).astype(np.float64)
    low, high = values[:-1], values[1:]
    middle = ((low + high) / 2).astype(np.float32)
    codes = encode(middle, FORMATS[name]).astype(np.int64)
    assert not (codes & 1).any(), "the even neighbour"
    quarter = (low + (high - low) / 4).astype(np.float32)
    assert np.array_equal(make_value_table(name)[encode(quarter, FORMATS[name])], low)


def test_scales_are_powers_of_two_and_one_nan() -> None:
    scales = make_value_table("e8m0").astype(np.float64)
    assert np.array_equal(scales[:255], 2.0 ** np.arange(-127, 128))
    assert np.isnan(scales[255])


def test_too_large_numbers() -> None:
    huge = np.array([1e9, -1e9, np.inf], np.float32)
    fnuz, ocp, five = FORMATS["fp8_fnuz"], FORMATS["fp8_ocp"], FORMATS["bf8_ocp"]
    assert list(encode(huge, fnuz)) == [0x80, 0x80, 0x80]
    assert list(encode(huge, fnuz, saturate=True)) == [0x7F, 0xFF, 0x80]
    assert list(encode(huge[:2], ocp, saturate=True)) == [0x7E, 0xFE]
    assert list(encode(huge, five)) == [0x7C, 0xFC, 0x7C]


def test_8_bit_floats_are_those_of_the_gpu() -> None:
    assert find_format("fp8", ARCHES["gfx942"]).name == "fp8_fnuz"
    assert find_format("bf8", ARCHES["gfx950"]).name == "bf8_ocp"
    assert find_format("bf8", ARCHES["gfx1201"]).name == "bf8_ocp"
    with pytest.raises(UnknownValueError, match="fp7"):
        find_format("fp7", ARCHES["gfx942"])


def test_unpacking_keeps_the_order_of_the_bits() -> None:
    registers = np.zeros((3, 2, 4), np.uint32)
    registers[0, 1, 2], registers[1, 1, 2], registers[2, 1, 2] = 0x87654321, 0xFEDCBA98, 0x01234567
    words = [int(word) for word in registers[:, 1, 2]]
    whole = words[0] | words[1] << 32 | words[2] << 64
    for name in ("i4", "u4", "fp6", "fp4", "i8", "u8", "fp8_ocp", "f16", "bf16"):
        width = FORMATS[name].bits
        codes = [whole >> at & (1 << width) - 1 for at in range(0, 96, width)]
        got = unpack(registers, FORMATS[name])
        assert got.shape == (2, 96 // width, 4)
        assert np.array_equal(got[1, :, 2], np.array([value(name, code) for code in codes], np.float32), equal_nan=True)
        assert not got[0].any()


@pytest.mark.parametrize(
    ("arch", "name", "kinds"),
    [
        ("gfx942", "v_mfma_f32_32x32x16_fp8_bf8", ("fp8_fnuz", "bf8_fnuz")),
        ("gfx942", "v_mfma_f32_16x16x32_bf8_fp8", ("bf8_fnuz", "fp8_fnuz")),
        ("gfx950", "v_mfma_f32_32x32x16_fp8_bf8", ("fp8_ocp", "bf8_ocp")),
        ("gfx950", "v_mfma_f32_16x16x128_f8f6f4", ("fp8_ocp", "fp8_ocp")),
        ("gfx1201", "v_wmma_f32_16x16x16_bf8_fp8", ("bf8_ocp", "fp8_ocp")),
    ],
)
def test_8_bit_floats_in_matrices(arch: str, name: str, kinds: tuple[str, str]) -> None:
    """All 256 patterns of A, one to a wave, times 1 in B; the NaNs among them, too."""
    shape = list_shapes(ARCHES[arch].family)[name]
    shape = shape.replace_formats("fp8", "fp8") if shape.a == "f8f6f4" else shape
    run = Run(arch, name, shape, 256)
    a = np.zeros((256, 1, shape.m, shape.k), np.uint8)
    b = np.zeros((256, 1, shape.n, shape.k), np.uint8)
    a[:, 0, 3, 5] = np.arange(256)
    b[:, 0, 7, 5] = next(code for code in range(256) if value(kinds[1], code) == 1)
    run.put_inputs(a, b, shape.a, shape.b)
    run.step()
    got = run.words(run.d)[:, 0, 3, 7].view(np.float32)
    expected = np.array([value(kinds[0], code) for code in range(256)], np.float32)
    assert np.array_equal(got, expected, equal_nan=True)


def test_the_sum_is_rounded_to_nearest_even() -> None:
    one = 0x3C00
    for start, end in ((2.0**24, 2.0**24), (2.0**24 + 2, 2.0**24 + 4)):
        got = one_product("gfx942", "v_mfma_f32_32x32x8_f16", one, one, constant(start))
        assert got[0] == bits(end)


@pytest.mark.parametrize(
    ("arch", "name", "kept"),
    [
        ("gfx908", "v_mfma_f32_32x32x8f16", True),
        ("gfx90a", "v_mfma_f32_32x32x8f16", False),
        ("gfx942", "v_mfma_f32_32x32x8_f16", True),
        ("gfx950", "v_mfma_f32_32x32x8_f16", True),
        ("gfx1100", "v_wmma_f32_16x16x16_f16", True),
    ],
)
def test_subnormal_f16_inputs(arch: str, name: str, kept: bool) -> None:
    smallest, two = 0x0001, 0x4000
    for code, sign in ((smallest, 1), (smallest | 0x8000, -1)):
        got = one_product(arch, name, code, two, constant(1.0))
        assert got[0] == bits(1 + sign * 2.0**-23 if kept else 1.0)


@pytest.mark.parametrize(
    ("arch", "name", "kept"),
    [
        ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", False),
        ("gfx90a", "v_mfma_f32_32x32x4bf16", False),
        ("gfx942", "v_mfma_f32_32x32x8_bf16", True),
    ],
)
def test_subnormal_bf16_inputs_and_results(arch: str, name: str, kept: bool) -> None:
    power = {exponent: bits(2.0**exponent) >> 16 for exponent in (-130, -70, -60, 100)}
    got = one_product(arch, name, power[-130], power[100], constant(0))
    assert got[0] == (bits(2.0**-30) if kept else 0)
    got = one_product(arch, name, power[-70] | 0x8000, power[-60], constant(0))  # subnormal only as a result
    assert got[0] == (bits(-(2.0**-130)) if kept else 0x80000000)
    run = prepared(arch, name, 1)
    run.c[...] = 5  # a subnormal C
    run.step()
    assert (run.d == (5 if kept else 0)).all()


def test_f32_keeps_subnormal_numbers_on_the_gpu_that_flushes_others() -> None:
    got = one_product("gfx90a", "v_mfma_f32_32x32x2f32", bits(2.0**-130), bits(1.0), constant(0))
    assert got[0] == bits(2.0**-130)


def test_flushing_keeps_everything_else() -> None:
    values = np.array([0x00000000, 0x80000000, 0x00800000, 0x807FFFFF, 0x00000001, 0x7FC0DEAD], np.uint32)
    flushed = flush_subnormal(values.view(np.float32)).view(np.uint32)
    assert list(flushed) == [0x00000000, 0x80000000, 0x00800000, 0x80000000, 0x00000000, 0x7FC0DEAD]
    sound = values[[0, 1, 2, 5]].view(np.float32)
    assert flush_subnormal(sound) is sound


def test_integers_wrap() -> None:
    run = prepared("gfx942", "v_mfma_i32_32x32x16_i8", 2)
    shape = run.shape
    a = np.full((2, 1, shape.m, shape.k), 0x80)  # -128
    run.put_inputs(a, a, "i8", "i8")
    run.c[...] = 0x7FFFFFFF
    run.step()
    assert (run.d == (0x7FFFFFFF + 16 * 128 * 128)).all()


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_integers_with_and_without_sign(arch: str) -> None:
    for bits_of_sign, product in (((1, 1, 0), 1), ((0, 0, 0), 255 * 255), ((1, 0, 0), -255), ((0, 1, 0), -255)):
        got = one_product(arch, "v_wmma_i32_16x16x16_iu8", 0xFF, 0xFF, constant(3), neg_lo=bits_of_sign)
        assert got.view(np.int32)[0] == product + 3
        got = one_product(arch, "v_wmma_i32_16x16x16_iu4", 0xF, 0xF, constant(-3), neg_lo=bits_of_sign)
        expected = {1: 1, 255 * 255: 225, -255: -15}[product]
        assert got.view(np.int32)[0] == expected - 3


def test_integers_clamp() -> None:
    name = "v_wmma_i32_16x16x16_iu8"
    limit = constant(0x7FFFFFFF)
    assert one_product("gfx1100", name, 100, 100, limit, clamp=True)[0] == 0x7FFFFFFF
    assert one_product("gfx1100", name, 100, 100, limit)[0] == 0x7FFFFFFF + 10000
    least = constant(0x80000000)
    assert one_product("gfx1100", name, 0x9C, 100, least, neg_lo=(1, 1, 0), clamp=True)[0] == 0x80000000


def test_nothing_but_a_number_times_infinity_is_nan() -> None:
    infinity = 0x7C00
    assert np.isnan(one_product("gfx942", "v_mfma_f32_32x32x8_f16", infinity, 0, constant(0)).view(np.float32)[0])
    got = one_product("gfx942", "v_mfma_f32_32x32x8_f16", infinity, 0xBC00, constant(0)).view(np.float32)[0]
    assert got == -np.inf


def test_xf32_has_ten_bits_of_mantissa() -> None:
    name = "v_mfma_f32_16x16x8_xf32"
    for number, taken in ((1 + 2.0**-10, 1 + 2.0**-10), (1 + 2.0**-12, 1.0), (1 + 2.0**-11 + 2.0**-20, 1 + 2.0**-10)):
        assert one_product("gfx942", name, bits(number), bits(1.0), constant(0))[0] == bits(taken)
    assert one_product("gfx942", name, bits(np.inf), bits(1.0), constant(0))[0] == bits(np.inf)
