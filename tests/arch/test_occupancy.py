"""Occupancy against numbers worked by hand, against LLVM's own, and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.arch import Arch, arch_names, load
from tilewright.arch.occupancy import Occupancy, compute_occupancy, count_architectural_vgprs
from tilewright.base.errors import InvalidValueError

CDNA_UNIFIED = ("gfx90a", "gfx942", "gfx950")
RDNA = ("gfx1100", "gfx1200", "gfx1201")


def of(
    name: str,
    *,
    vgprs: int = 1,
    agprs: int = 0,
    sgprs: int = 16,
    lds_bytes: int = 0,
    block_threads: int = 256,
) -> Occupancy:
    return compute_occupancy(
        load(name),
        vgprs=vgprs,
        agprs=agprs,
        sgprs=sgprs,
        lds_bytes=lds_bytes,
        block_threads=block_threads,
    )


# First register count at which the waves per SIMD drop, as LLVM 22 (`llc -mcpu=…`) reports them
# for kernels that touch v0 … v(count-1), work-groups of 256 threads.
LLVM_VGPR_STEPS = {
    "gfx908": {1: 10, 25: 9, 29: 8, 33: 7, 37: 6, 41: 5, 49: 4, 65: 3, 85: 2, 129: 1},
    **{name: {1: 8, 65: 7, 73: 6, 81: 5, 97: 4, 129: 3, 169: 2} for name in CDNA_UNIFIED},
    **{n: {1: 16, 97: 12, 121: 10, 145: 9, 169: 8, 193: 7, 217: 6, 241: 5} for n in RDNA},
}


@pytest.mark.parametrize("name", LLVM_VGPR_STEPS)
def test_vgprs_agree_with_llvm(name: str) -> None:
    expected = 0
    for vgprs in range(1, 257):
        expected = LLVM_VGPR_STEPS[name].get(vgprs, expected)
        assert of(name, vgprs=vgprs).limits["vgprs"] == expected, vgprs


# The same for kernels that touch `vgprs` VGPRs and a growing number of AGPRs.
LLVM_AGPR_STEPS = [
    ("gfx908", 5, {1: 10, 25: 9, 29: 8, 33: 7, 37: 6, 41: 5, 49: 4, 65: 3, 85: 2, 129: 1}),
    ("gfx908", 64, {1: 4, 65: 3, 85: 2, 129: 1}),
    ("gfx908", 129, {1: 1}),
    ("gfx90a", 5, {1: 8, 57: 7, 65: 6, 73: 5, 89: 4, 121: 3, 161: 2, 249: 1}),
    ("gfx942", 100, {1: 4, 29: 3, 69: 2, 157: 1}),
    ("gfx942", 129, {1: 3, 37: 2, 125: 1}),
    ("gfx950", 253, {1: 1}),
]


@pytest.mark.parametrize(("name", "vgprs", "steps"), LLVM_AGPR_STEPS)
def test_agprs_agree_with_llvm(name: str, vgprs: int, steps: dict[int, int]) -> None:
    expected = 0
    for agprs in range(1, 257):
        expected = steps.get(agprs, expected)
        assert of(name, vgprs=vgprs, agprs=agprs).limits["vgprs"] == expected, agprs


# Waves per SIMD by threads and LDS bytes, as `llc` reports them; sizes that are whole granules, as
# LLVM 22 does not round LDS up.
LLVM_LDS = [
    ("gfx908", 64, {0: 10, 4096: 4, 16384: 1, 65536: 1}),
    ("gfx908", 128, {0: 8, 4096: 8, 16384: 2, 32768: 1}),
    ("gfx908", 768, {0: 9, 16384: 9, 32768: 6, 65536: 3}),
    ("gfx942", 256, {0: 8, 4096: 8, 16384: 4, 32768: 2, 65536: 1}),
    ("gfx942", 768, {0: 6, 16384: 6, 65536: 3}),
    ("gfx942", 1024, {0: 8, 32768: 8, 65536: 4}),
    ("gfx950", 256, {0: 8, 40960: 4, 81920: 2}),
    ("gfx1100", 64, {4096: 16, 16384: 4, 32768: 2, 65536: 1}),
    ("gfx1100", 256, {0: 16, 16384: 16, 32768: 8, 65536: 4}),
    ("gfx1100", 768, {0: 12, 65536: 12}),
]


@pytest.mark.parametrize(("name", "threads", "by_lds"), LLVM_LDS)
def test_lds_and_block_size_agree_with_llvm(name: str, threads: int, by_lds: dict[int, int]) -> None:
    got = {lds: of(name, lds_bytes=lds, block_threads=threads).waves_per_simd for lds in by_lds}
    assert got == by_lds


def test_worked_by_hand_a_gemm_on_mi300x() -> None:
    # 100 VGPRs round to 100, + 64 AGPRs = 164, in eights 168; 512 // 168 = 3 waves per SIMD.
    # 4 waves per block, so 3 blocks; LDS 16384 would allow 65536 // 16384 = 4.
    got = of("gfx942", vgprs=100, agprs=64, sgprs=60, lds_bytes=16384)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (3, 3, "vgprs")
    assert dict(got.limits) == {"waves": 8, "vgprs": 3, "sgprs": 8, "lds": 4, "block": 3}


def test_worked_by_hand_lds_decides_on_mi300x() -> None:
    # 65536 // 32768 = 2 blocks of 4 waves on 4 SIMDs; 64 VGPRs would allow 8.
    got = of("gfx942", vgprs=64, lds_bytes=32768)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (2, 2, "lds")


def test_worked_by_hand_whole_blocks_decide() -> None:
    # 96 VGPRs: 512 // 96 = 5 waves, 20 per unit; 8 waves per block: 2 blocks, 16 waves, 4 per SIMD.
    got = of("gfx942", vgprs=96, block_threads=512)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (4, 2, "block")
    assert got.limits["vgprs"] == 5


def test_worked_by_hand_rdna_work_group_processor() -> None:
    # 193 VGPRs in 24s: 216; 1536 // 216 = 7 waves, 28 per WGP; 8 waves per block: 3 blocks, 24
    # waves, 6 per SIMD. LDS 131072 // 40960 = 3 blocks as well.
    got = of("gfx1100", vgprs=193, lds_bytes=40000, block_threads=256)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (6, 3, "block")
    assert dict(got.limits) == {"waves": 16, "vgprs": 7, "sgprs": 16, "lds": 6, "block": 6}


def test_barriers_hold_back_small_blocks_on_mi100() -> None:
    # 40 wave slots would take 20 blocks of 2 waves; a unit has 16 barriers: 32 waves, 8 per SIMD.
    got = of("gfx908", block_threads=128)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (8, 16, "block")
    assert of("gfx908", block_threads=64).blocks_per_unit == 40


def test_sgprs_are_taken_in_granules() -> None:
    # 800 // 96 = 8 and 800 // 112 = 7; on gfx908 also 800 // 80 = 10.
    assert [of("gfx942", sgprs=n).limits["sgprs"] for n in (96, 97, 108)] == [8, 7, 7]
    assert [of("gfx908", sgprs=n).limits["sgprs"] for n in (80, 81, 97)] == [10, 8, 7]
    assert of("gfx908", sgprs=97).limited_by == "sgprs"
    assert of("gfx1100", sgprs=106).limits["sgprs"] == 16


def test_lds_is_taken_in_granules() -> None:
    # gfx950: 16384 becomes 13 × 1280 = 16640, 163840 // 16640 = 9; without rounding it were 10.
    assert of("gfx950", lds_bytes=16384, block_threads=64).blocks_per_unit == 9
    assert of("gfx942", lds_bytes=32769).blocks_per_unit == 1


def test_a_block_that_never_fits_has_no_occupancy() -> None:
    # 512 registers leave one wave per SIMD, 4 per unit; the block has 16.
    got = of("gfx942", vgprs=256, agprs=256, block_threads=1024)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (0, 0, "block")
    got = of("gfx942", lds_bytes=65537)
    assert (got.waves_per_simd, got.blocks_per_unit, got.limited_by) == (0, 0, "lds")


@pytest.mark.parametrize(
    ("name", "use", "message"),
    [
        ("gfx942", {"vgprs": 257}, r"vgprs is 257; gfx942 allows 0 to 256. Subtract AGPRs"),
        ("gfx942", {"agprs": -1}, r"agprs is -1; gfx942 allows 0 to 256"),
        ("gfx1100", {"agprs": 1}, r"agprs is 1; gfx1100 allows 0 to 0"),
        ("gfx942", {"sgprs": 113}, r"sgprs is 113; gfx942 allows 0 to 112"),
        ("gfx942", {"lds_bytes": -1}, r"lds_bytes is -1"),
        ("gfx942", {"block_threads": 0}, r"block_threads is 0; gfx942 allows 1 to 1024"),
        ("gfx942", {"block_threads": 2048}, r"block_threads is 2048; gfx942 allows 1 to 1024"),
    ],
)
def test_impossible_numbers_are_refused(name: str, use: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        of(name, **use)


def test_architectural_vgprs_of_metadata() -> None:
    # v0–v4 and a0–a24 give .vgpr_count 33 = 8 + 25 with a unified file, 25 with separate ones.
    assert count_architectural_vgprs(load("gfx942"), 33, 25) == 8
    assert count_architectural_vgprs(load("gfx908"), 25, 25) == 25
    assert count_architectural_vgprs(load("gfx1100"), 5, 0) == 5
    with pytest.raises(InvalidValueError, match=r"\.agpr_count 25 is larger than \.vgpr_count 5"):
        count_architectural_vgprs(load("gfx942"), 5, 25)


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Arch, dict[str, int]]:
    arch = load(draw(st.sampled_from(arch_names())))
    most_agprs = 0 if arch.registers.agprs == "none" else 256
    use = {
        "vgprs": draw(st.integers(0, 256)),
        "agprs": draw(st.integers(0, most_agprs)),
        "sgprs": draw(st.integers(0, 106)),
        "lds_bytes": draw(st.integers(0, arch.lds.bytes)),
        "block_threads": draw(st.integers(1, 1024)),
    }
    return arch, use


@given(kernels(), st.sampled_from(["vgprs", "agprs", "sgprs", "lds_bytes"]), st.integers(0, 64))
def test_using_more_never_gives_more(kernel: tuple[Arch, dict[str, int]], resource: str, extra: int) -> None:
    arch, use = kernel
    most = {"vgprs": 256, "sgprs": 106, "lds_bytes": arch.lds.bytes}
    most["agprs"] = 0 if arch.registers.agprs == "none" else 256
    more = use | {resource: min(use[resource] + extra, most[resource])}
    before, after = compute_occupancy(arch, **use), compute_occupancy(arch, **more)
    assert after.waves_per_simd <= before.waves_per_simd
    assert after.blocks_per_unit <= before.blocks_per_unit


@given(kernels())
def test_the_parts_of_an_answer_agree(kernel: tuple[Arch, dict[str, int]]) -> None:
    arch, use = kernel
    got = compute_occupancy(arch, **use)
    waves = got.blocks_per_unit * -(-use["block_threads"] // arch.wave_size)
    simds = arch.compute.simds_per_unit
    assert got.waves_per_simd == -(-waves // simds) == min(got.limits.values())
    assert set(got.limits) == {"waves", "vgprs", "sgprs", "lds", "block"}
    assert got.limits[got.limited_by] == got.waves_per_simd
    assert waves <= simds * min(got.limits["vgprs"], got.limits["sgprs"])
    assert got.blocks_per_unit * use["lds_bytes"] <= arch.lds.unit_bytes
