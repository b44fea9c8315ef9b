"""The shipped GPU files: they load, every number has a source, and their parts fit together."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tilewright.arch import Arch, arch_names, load, load_file
from tilewright.arch.dtypes import ARRAY_TYPES, DTYPES
from tilewright.arch.load import DATA

FILES = sorted(DATA.glob("*.toml"))
SOURCED_SECTIONS = ("compute", "registers", "lds", "memory", "numbers", "peak_tflops")
TAG = re.compile(r"\[([a-z]+)\]")


def archs() -> list[Arch]:
    return [load(name) for name in arch_names()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_file_loads(path: Path) -> None:
    arch = load_file(path)
    assert arch.name == path.stem
    assert arch.source == str(path)
    assert arch.mma


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_has_a_source(path: Path) -> None:
    section, header_has_source, unsourced = "", False, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        code, _, comment = line.partition("#")
        if code.startswith("["):
            section = code.strip().strip("[]")
            header_has_source = bool(TAG.search(comment))
            continue
        # In [numbers] words are facts, too.
        has_number = section in SOURCED_SECTIONS and re.search(r"= *." if section == "numbers" else r"= *-?\d", code)
        if has_number and not (header_has_source or TAG.search(comment)):
            unsourced.append(f"{path.name}:{number}: {line}")
    assert not unsourced


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_source_tags_are_defined_and_used(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    defined = {m[1] for line in lines if (m := re.match(r"#   \[([a-z]+)\]  ", line))}
    others = [line for line in lines if not re.match(r"#   \[", line)]
    used = {tag for line in others if "#" in line for tag in TAG.findall(line.split("#", 1)[1])}
    assert used == defined


# How the mnemonics of LLVM 22 spell the inputs of a matrix instruction. The f8f6f4 instructions of
# gfx950 take their formats from modifiers, so their name says nothing about them.
INPUTS = {
    "fp32_fp32_fp32": r"f32_\d+x\d+x\d+_?f32",
    "fp16_fp16_fp32": r"f32_\d+x\d+x\d+(_\d+b)?_?f16",
    "bf16_bf16_fp32": r"f32_\d+x\d+x\d+(_\d+b)?_?bf16(_1k)?",
    "fp8_fp8_fp32": r"f32_\d+x\d+x\d+_(fp8_fp8|f8f6f4)",
    "fp8_bf8_fp32": r"f32_\d+x\d+x\d+_(fp8_bf8|f8f6f4)",
    "bf8_fp8_fp32": r"f32_\d+x\d+x\d+_(bf8_fp8|f8f6f4)",
    "bf8_bf8_fp32": r"f32_\d+x\d+x\d+_(bf8_bf8|f8f6f4)",
    "int8_int8_int32": r"i32_\d+x\d+x\d+_?(i8|iu8)",
    "pk_fp4_pk_fp4_fp32": r"f32_\d+x\d+x\d+_f8f6f4",
}


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.name)
def test_an_instruction_takes_the_types_of_its_table(arch: Arch) -> None:
    for triple, table in arch.mma.items():
        for shape, instruction in table.items():
            pattern = rf"v_{arch.matrix}_{INPUTS[str(triple)]}"
            assert re.fullmatch(pattern, instruction), (str(triple), str(shape))


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.name)
def test_a_tile_is_made_of_whole_instructions(arch: Arch) -> None:
    for table in arch.mma.values():
        for shape, instruction in table.items():
            m, n, k = (int(x) for x in re.search(r"_(\d+)x(\d+)x(\d+)", instruction).groups())
            assert shape.k % k == 0
            # One 4x4x4 instruction does 16 small products: it covers 4x64 or 64x4.
            assert (shape.m, shape.n) in ([(4, 64), (64, 4)] if m == 4 else [(m, n)])


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.name)
def test_what_multiplies_has_a_peak_rate(arch: Arch) -> None:
    assert {triple.a for triple in arch.mma} <= set(arch.peak_tflops)


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.name)
def test_peak_rates_are_what_the_units_can_do(arch: Arch) -> None:
    # Per unit and clock the hardware does a power of two of operations; data sheets round a little.
    for dtype, tflops in arch.peak_tflops.items():
        per_clock = tflops * 1e6 / (arch.compute.units * arch.compute.clock_mhz)
        whole = 2 ** round(math.log2(per_clock))
        assert per_clock == pytest.approx(whole, rel=2e-3), dtype


# Clocks of matrix instructions: 2 to 16 passes of 4 clocks each (LLVM, SISchedule.td).
PASSES = {8, 16, 32, 64}


@pytest.mark.parametrize("arch", [arch for arch in archs() if arch.matrix == "mfma"], ids=lambda arch: arch.name)
def test_rates_are_those_of_whole_passes(arch: Arch) -> None:
    compute = arch.compute
    simds = compute.units * compute.simds_per_unit * compute.clock_mhz / 1e6
    for triple, shapes in arch.mma.items():
        for name in shapes.values():
            m, n, k = (int(part) for part in re.findall(r"(\d+)x(\d+)x(\d+)", name)[0])
            matrices = 16 if (m, n) == (4, 4) else 1  # at once
            rate = arch.peak_tflops[triple.a] / simds * arch.matrix_share.get(name, 1)
            clocks = 2 * m * n * k * matrices / rate
            assert any(clocks == pytest.approx(whole, rel=2e-3) for whole in PASSES), (name, clocks)


def test_the_tiles_that_users_count_on() -> None:
    fp16 = {arch.name: set(map(str, arch.mma_shapes("fp16", "fp16", "fp32"))) for arch in archs()}
    assert {"32x32x8", "32x32x16", "16x16x16", "16x16x32"} <= fp16["gfx908"] & fp16["gfx90a"]
    assert fp16["gfx942"] == fp16["gfx950"] == fp16["gfx908"] | {"4x64x16", "64x4x16"}
    assert fp16["gfx1100"] == fp16["gfx1200"] == fp16["gfx1201"] == {"16x16x16"}
    assert load("gfx1200").mma == load("gfx1201").mma


def test_mixed_pairs_name_an_instruction_of_both_types() -> None:
    for arch in archs():
        for a, b in (("fp8", "bf8"), ("bf8", "fp8")):
            for instruction in arch.mma_shapes(a, b, "fp32").values():
                assert instruction.endswith((f"_{a}_{b}", "_f8f6f4")), (arch.name, instruction)


def test_preshuffle_tables() -> None:
    with_table = {a.name for a in archs() if "preshuffle" in a.op_tables.get("gemm", {})}
    assert with_table == {"gfx90a", "gfx942", "gfx950"}
    table = load("gfx942").op_tables["gemm"]["preshuffle"]
    assert set(table["int8_int8_int32"]) == {"16x16x32", "32x32x16"}


def test_what_numbers_mean() -> None:
    assert {arch.name for arch in archs() if arch.numbers.fp8 == "ocp"} == {"gfx950", "gfx1200", "gfx1201"}
    assert {arch.name for arch in archs() if arch.numbers.halves_flushed} == {"gfx90a"}
    assert {arch.name for arch in archs() if not arch.numbers.bf16_add} == {"gfx950"}
    assert [load("gfx942").resolve_dtype(name) for name in ("fp8", "bf8", "fp16")] == ["fp8_fnuz", "bf8_fnuz", "fp16"]
    assert [load("gfx1201").resolve_dtype(name) for name in ("fp8", "bf8", "bf16")] == ["fp8_ocp", "bf8_ocp", "bf16"]


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.name)
def test_the_encoding_is_that_of_a_type_that_arrays_have(arch: Arch) -> None:
    assert {arch.resolve_dtype(name) for name in ("fp8", "bf8")} <= set(ARRAY_TYPES)


def test_every_type_of_arrays_is_a_data_type_in_an_encoding() -> None:
    plain = {name for name in ARRAY_TYPES if name in DTYPES}
    encoded = {f"{name}_{encoding}" for name in ("fp8", "bf8") for encoding in ("fnuz", "ocp")}
    assert set(ARRAY_TYPES) == plain | encoded
    packed = {dtype.name for dtype in DTYPES.values() if dtype.packed > 1}
    assert set(DTYPES) == plain | packed | {"fp8", "bf8"}
