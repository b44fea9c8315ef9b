"""The timeline: clocks of hand-written code follow from the constants of the machine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tilewright.arch import load
from tilewright.base.errors import InvalidValueError
from tilewright.building.instruction_mix import classify
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.launch import Extent
from tilewright.emulator.profile import InstructionCounts, KernelProfile, ProfiledInstruction
from tilewright.emulator.source_lines import SourceLine
from tilewright.emulator.timing.estimate import estimate, run_timeline, summarize
from tilewright.emulator.timing.machine import TimingMachine, load_machine
from tilewright.emulator.timing.paths import find_loop, make_paths
from tilewright.emulator.timing.simulator import ComputeUnit, Timeline, sum_reasons
from tilewright.emulator.wave_paths import BlockPaths, WavePath

CDNA, RDNA = load_machine(load("gfx942")), load_machine(load("gfx1100"))
END = "s_endpgm"
Counted = Mapping[str, Mapping[str, int]]  # counts of an instruction, by mnemonic
NONE: Counted = {}


def make_profile(
    texts: list[str],
    machine: TimingMachine = CDNA,
    paths: BlockPaths | None = None,
    waves: int = 1,
    counts: Counted = NONE,
) -> KernelProfile:
    """A kernel of these instructions, 4 bytes each, one source line each. `counts` are those of a mnemonic."""
    instructions = tuple(
        ProfiledInstruction(
            4 * number,
            text,
            classify(text.split()[0]),
            SourceLine("kernel.hip", number + 1, 1),
            InstructionCounts(executed=1, **counts.get(text.split()[0], {})),
        )
        for number, text in enumerate(texts)
    )
    own = paths or (tuple(WavePath(((0, len(texts)),)) for _ in range(waves)),)
    arch = machine.arch
    size = Extent(arch.wave_size * len(own[0]))
    return KernelProfile(
        "kernel", arch.name, arch.wave_size, Extent(1), size, len(own[0]), 8, 0, 8, instructions, paths=own
    )


def run(profile: KernelProfile, machine: TimingMachine = CDNA, resident: int = 1, total: int | None = None) -> Timeline:
    return ComputeUnit(machine, make_paths(profile, machine)).run(resident, total or resident)


def count_clocks(texts: list[str], machine: TimingMachine = CDNA, counts: Counted = NONE) -> int:
    """Clocks of one wave, without the start of its work-group."""
    return run(make_profile(texts, machine, counts=counts), machine).clocks - machine.block_start


CHAIN = ["v_add_u32_e32 v0, v0, v1"] * 10
APART = [f"v_mov_b32_e32 v{number}, v20" for number in range(10)]


def test_vector_chains() -> None:
    """CDNA issues a vector instruction every 4 clocks, dependent or not. RDNA waits for results."""
    assert count_clocks([*CHAIN, END]) == count_clocks([*APART, END]) == 10 * CDNA.issue == 40
    assert count_clocks([*APART, END], RDNA) == 10 * RDNA.issue
    assert count_clocks([*CHAIN, END], RDNA) == 9 * RDNA.vector_result + RDNA.issue
    stalled = sum_reasons(run(make_profile([*CHAIN, END], RDNA), RDNA))
    assert stalled == {"result": 9 * (RDNA.vector_result - RDNA.issue)}


def test_slow_functions_occupy_the_unit() -> None:
    texts = ["v_exp_f32_e32 v0, v20", "v_exp_f32_e32 v1, v20", "v_mov_b32_e32 v2, v1", END]
    assert count_clocks(texts) == 2 * CDNA.slow_vector + CDNA.issue


LOAD: Counted = {"global_load_dword": {"global_read_bytes": 256, "cache_lines": 2}}


def test_a_load_and_its_wait() -> None:
    texts = ["global_load_dword v1, v0, s[0:1]", "v_add_u32_e32 v2, v2, v3", "s_waitcnt vmcnt(0)", END]
    profile = make_profile(texts, counts=LOAD)
    arrives = max(4, 256 // CDNA.memory_bytes) + CDNA.memory_latency
    timeline = run(profile)
    assert timeline.clocks - CDNA.block_start == arrives + CDNA.issue
    assert timeline.stalled == {(8, "memory"): arrives - 2 * CDNA.issue}  # at the wait, the third instruction
    two = ["global_load_dword v1, v0, s[0:1]", "global_load_dword v2, v0, s[0:1]", "s_waitcnt vmcnt(1)", END]
    assert count_clocks(two, counts=LOAD) == arrives + CDNA.issue  # the older one only


def test_bank_conflicts_delay_data() -> None:
    texts = ["ds_read_b32 v1, v0", "s_waitcnt lgkmcnt(0)", END]
    without = count_clocks(texts, counts={"ds_read_b32": {"lds_read_bytes": 256}})
    conflicts = count_clocks(texts, counts={"ds_read_b32": {"lds_read_bytes": 256, "bank_conflict_cycles": 62}})
    assert without == 256 // CDNA.lds_bytes + CDNA.lds_latency + CDNA.issue
    assert conflicts == without + 62


MATRIX = "v_mfma_f32_16x16x16_f16"  # 4 passes of 4 clocks on gfx942


def test_matrix_instructions_back_to_back() -> None:
    apart = [f"{MATRIX} a[{4 * n}:{4 * n + 3}], v[0:1], v[2:3], a[{4 * n}:{4 * n + 3}]" for n in range(4)]
    chain = [f"{MATRIX} a[0:3], v[0:1], v[2:3], a[0:3]"] * 4
    assert count_clocks([*apart, END]) == count_clocks([*chain, END]) == 3 * 16 + CDNA.issue
    read = [f"{MATRIX} v[4:7], v[0:1], v[2:3], v[4:7]", f"{MATRIX} v[8:11], v[4:5], v[2:3], v[8:11]", END]
    assert count_clocks(read) == 16 + CDNA.matrix_result + CDNA.issue
    assert sum_reasons(run(make_profile([*apart, END]))) == {"matrix pipe": 3 * 12}


@pytest.mark.parametrize(
    ("gpu", "name", "clocks"),
    [
        ("gfx942", "v_mfma_f32_32x32x8_f16", 32),
        ("gfx950", "v_mfma_f32_32x32x16_bf16", 32),  # passes of LLVM's scheduling model
        ("gfx950", "v_mfma_f32_32x32x8_bf16", 32),
        ("gfx90a", "v_mfma_f32_32x32x8f16", 64),
        ("gfx1100", "v_wmma_f32_16x16x16_f16", 32),
    ],
)
def test_matrix_clocks_follow_from_peak_rates(gpu: str, name: str, clocks: int) -> None:
    machine = load_machine(load(gpu))
    assert machine.count_matrix_clocks(name, machine.find_shape(name, 0)) == clocks


def test_more_waves_hide_latency() -> None:
    profile = make_profile(
        ["global_load_dword v1, v0, s[0:1]", "s_waitcnt vmcnt(0)", *CHAIN, END], waves=4, counts=LOAD
    )
    alone, together = run(profile, resident=1, total=8), run(profile, resident=8, total=8)
    assert alone.clocks > 8 * CDNA.memory_latency
    assert together.clocks < 0.6 * alone.clocks
    # The second work-group begins when the engine has started a wave of each unit as often as needed.
    assert [start for start, _ in together.blocks[:2]] == [0, CDNA.wave_start * 4 * CDNA.units_per_engine]
    # Vector instructions cannot overlap on a SIMD, which has one wave of each work-group.
    many = make_profile([*CHAIN * 100, END], waves=4)
    assert run(many, resident=4, total=4).clocks >= 4 * 1000 * CDNA.issue


def test_units_work_side_by_side() -> None:
    """Two waves of a SIMD: scalar and vector instructions are issued in the same clocks, two vector ones are not."""
    scalar = ["s_add_u32 s0, s0, s1"] * 100
    vector = CHAIN * 10
    texts = [*scalar, END, *vector, END]
    one, other = WavePath(((0, 101),)), WavePath(((404, 101),))
    mixed = run(make_profile(texts, paths=((one, one, one, one, other, other, other, other),)))
    same = run(make_profile(texts, paths=((other,) * 8,)))
    assert mixed.clocks < 1.1 * 100 * CDNA.issue + CDNA.block_start
    assert same.clocks >= 2 * 100 * CDNA.issue + CDNA.block_start
    assert sum_reasons(same)["issue"] >= 100 * CDNA.issue


def test_barriers_wait_for_the_slowest_wave() -> None:
    texts = [*CHAIN, "s_barrier", END]
    slow, fast = WavePath(((0, 12),)), WavePath(((32, 4),))  # the second begins with the last two of the chain
    timeline = run(make_profile(texts, paths=((slow, fast),)))
    assert timeline.stalled == {(40, "barrier"): 8 * CDNA.issue}
    ends = WavePath(((44, 1),))  # a wave that has ended does not hold the others up
    assert run(make_profile(texts, paths=((slow, ends),))).stalled == {}


def test_rounds_of_a_loop() -> None:
    texts = [*CHAIN, "s_cbranch_scc1 65525", END]
    profile = make_profile(texts, paths=((WavePath(((0, 11), (0, 11), (0, 12))),),))
    loop = find_loop(profile)
    assert loop is not None and (loop.address, loop.rounds, loop.instructions) == (0, 3, 11)
    found = estimate(profile, CDNA.arch)
    assert found.round_clocks == 10 * CDNA.issue + CDNA.jump
    assert found.block_clocks == CDNA.block_start + 2 * (10 * CDNA.issue + CDNA.jump) + 11 * CDNA.issue


def test_lines_have_their_stalls() -> None:
    texts = ["global_load_dword v1, v0, s[0:1]", "s_waitcnt vmcnt(0)", END]
    profile = make_profile(texts, counts=LOAD)
    found = summarize(profile, run_timeline(profile, CDNA))
    first = found.lines[0]
    assert first.line == ("kernel.hip", 2) and list(first.stalled) == ["memory"]
    assert sum(line.clocks for line in found.lines) == found.wave_clocks
    document = found.to_json()
    assert "not measured" in document["note"] and document["stalled"] == {"memory": first.stalled["memory"]}


@pytest.mark.parametrize("gpu", EMULATED)
def test_every_emulated_gpu_has_a_machine(gpu: str) -> None:
    assert load_machine(load(gpu)).issue in (1, 4)


def test_other_families_are_an_error() -> None:
    with pytest.raises(InvalidValueError, match=r"cdna1.*known are cdna2"):
        load_machine(load("gfx908"))
