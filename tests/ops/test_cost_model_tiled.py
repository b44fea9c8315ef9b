"""The machine model, worked out by hand on an MI355X, and what must hold on every GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arch import Arch, arch_names, load
from tilewright.base.errors import UnknownValueError
from tilewright.ops.cost_model.tiled import (
    BatchedGemmSizes,
    KernelTile,
    LoopCost,
    compute_loop_cost,
    estimate_problem,
    matrix_rate,
)

ARCH = load("gfx950")
KIB = 1024.0
STEPS = 10.0
# One tile of C, computed in ten steps.
ONE = BatchedGemmSizes(m=128.0, n=128.0, k=640.0, read_bytes=1.0, written_bytes=1.0)


def changed(arch: Arch, **parts: dict[str, Any]) -> Arch:
    """The GPU with some numbers replaced, by the table that they are in."""
    tables = {name: dataclasses.replace(getattr(arch, name), **values) for name, values in parts.items()}
    return dataclasses.replace(arch, **tables)


# Memory and L2 that never hold anybody up: what is left is the time in the units.
FREE = changed(ARCH, memory={"bandwidth_gbs": 1e15, "l2_channels": 10**12})


def tile(**changes: Any) -> KernelTile:
    """128x128x64 of fp16 in 2x2 waves, with round numbers of instructions."""
    values: dict[str, Any] = {
        "block_m": 128.0, "block_n": 128.0, "block_k": 64.0, "waves_m": 2.0, "waves_n": 2.0,
        "matrix_rate": 1024.0, "vector_a": 8.0, "vector_b": 8.0, "read_a": 8.0, "read_b": 8.0,
        "inner_a": 64.0, "inner_b": 64.0, "lds_bytes": 32 * KIB, "registers": 128.0,
        "step_instructions": 10.0, "load_instructions": 5.0, "block_instructions": 100.0,
    }  # fmt: skip
    return KernelTile(**(values | changes))


def paced(arch: Arch = ARCH, **changes: Any) -> LoopCost:
    return compute_loop_cost(tile(**changes), arch)


def in_units(sizes: BatchedGemmSizes, block: LoopCost) -> float:
    """Clocks in the units alone."""
    return float((estimate_problem(sizes, block, FREE).us - FREE.compute.launch_us) * FREE.compute.clock_mhz)


def test_a_step_worked_by_hand() -> None:
    step = paced()
    # 2·128·128·64 operations, 4 SIMDs of 1024 each.
    assert step.matrix == 512
    # Two columns of waves read all of A, two rows all of B: 4 · 16 KiB; written once: 2 · 16 KiB; 128 bytes a clock.
    assert step.lds == 768
    # 256 rows of one line each, 64 bytes a clock.
    assert (step.lines_bytes, step.fetch) == (256 * 128, 512)
    # 4 waves · 10, 32 loads · (5 and a write to LDS), 2 · 32 reads: each 4 clocks, on 4 SIMDs.
    assert step.vector == 40 + 32 * 6 + 64
    assert step.busiest == 768
    # All one after the other, with the latencies of memory and LDS.
    assert step.alone == 512 + 768 + 512 + 296 + 700 + 128


def test_two_buffers_cover_loads_or_computing() -> None:
    assert paced(covered=1.0).alone == 512 + 768 + 296 + 128
    small = {"block_m": 16.0, "block_n": 16.0, "waves_m": 1.0, "waves_n": 1.0}
    assert paced(covered=1.0, **small).alone == paced(**small).fetch + 700 + 128


def test_steps_ahead_share_the_latency() -> None:
    assert paced().alone - paced(steps_ahead=4.0).alone == 700 * 3 / 4


def test_half_a_line_costs_a_line() -> None:
    whole, half = paced(), paced(block_k=32.0, inner_a=32.0, inner_b=32.0)
    assert half.lines_bytes == whole.lines_bytes
    # Where m and n are contiguous, it does not.
    assert paced(block_k=32.0, inner_a=128.0, inner_b=128.0).lines_bytes == whole.lines_bytes / 2


def test_an_instruction_of_half_the_k_takes_twice_as_long() -> None:
    names = ARCH.mma_shapes("fp16", "fp16", "fp32")
    rates = {str(shape): matrix_rate(ARCH, "fp16", name) for shape, name in names.items()}
    assert rates["16x16x32"] == pytest.approx(1024, rel=1e-4)
    assert rates["16x16x16"] == rates["16x16x32"] / 2
    assert rates["32x32x8"] == rates["32x32x16"] / 2
    older = load("gfx942")
    names = older.mma_shapes("fp16", "fp16", "fp32")
    rates = {str(shape): matrix_rate(older, "fp16", name) for shape, name in names.items()}
    assert rates["16x16x16"] == rates["16x16x32"] == rates["32x32x8"]


def test_a_type_without_a_matrix_rate_is_refused() -> None:
    with pytest.raises(UnknownValueError, match="matrix rate on gfx90a 'fp8'"):
        matrix_rate(load("gfx90a"), "fp8")


def test_narrow_reads_of_lds_cost_two_clocks_each() -> None:
    # 2 · 128 · 64 elements of each operand, 64 at a time: 256 reads, 2 clocks each instead of 1.
    assert paced(read_a=1.0).lds - paced().lds == 256 * 2 - 256
    assert paced(read_a=1.0).vector > paced().vector


def test_b_that_goes_to_registers_takes_no_lds() -> None:
    assert paced(b_in_lds=0.0).lds == 384


@pytest.mark.parametrize(
    ("use", "blocks"),
    [
        ({}, 4),  # 160 KiB of LDS hold 4.9 blocks of 32 KiB; 128 registers leave room for 4 waves on a SIMD
        ({"registers": 129.0}, 3),
        ({"lds_bytes": 60 * KIB}, 2),
        ({"lds_bytes": 160 * KIB}, 1),
        ({"registers": 24.0, "lds_bytes": 1.0}, 8),  # waves of a SIMD
        ({"registers": 24.0, "lds_bytes": 1.0, "waves_m": 1.0}, 16),  # barriers of a unit
        ({"registers": 24.0, "lds_bytes": 1.0, "waves_m": 1.0, "waves_n": 1.0}, 32),  # which one wave does not need
        ({"registers": 512.0, "waves_m": 4.0, "waves_n": 4.0}, 1),  # too much for one, which runs all the same
    ],
)
def test_resident_blocks(use: dict[str, float], blocks: int) -> None:
    assert paced(**use).resident == blocks


def test_256_tiles_are_one_block_on_each_unit_and_257_are_two_on_one() -> None:
    full = dataclasses.replace(ONE, batch=256.0)
    over = dataclasses.replace(ONE, batch=257.0)
    alone = paced(lds_bytes=160 * KIB)
    assert in_units(over, alone) == pytest.approx(2 * in_units(full, alone))
    # With room for two, the second block only adds what it takes of the busiest pipe, and its stores: 32 KiB that
    # count twice, 64 bytes a clock.
    shared = paced()
    more = in_units(over, shared) - in_units(full, shared)
    assert more == pytest.approx(STEPS * shared.busiest + 2 * 32 * KIB / 64)
    shape = estimate_problem(over, shared, ARCH).shape
    assert (shape["tiles"], shape["blocks"], shape["rounds"]) == (257, 2, 1)
    assert shape["fill"] == pytest.approx(257 / 512)


def test_the_tail_of_the_last_round() -> None:
    block = paced()  # 4 at once
    rounds = {blocks: in_units(dataclasses.replace(ONE, batch=256.0 * blocks), block) for blocks in (1, 4, 5, 8)}
    assert rounds[5] == pytest.approx(rounds[4] + rounds[1])
    assert rounds[8] == pytest.approx(2 * rounds[4])
    assert rounds[4] < 4 * rounds[1]
    tail = estimate_problem(dataclasses.replace(ONE, batch=256.0 * 5), block, ARCH).shape
    assert (tail["rounds"], tail["last_round"]) == (2, 5 / 8)


def test_padding_counts_as_work() -> None:
    block = paced()
    ragged = estimate_problem(dataclasses.replace(ONE, m=129.0, n=100.0, k=577.0), block, ARCH)
    whole = estimate_problem(dataclasses.replace(ONE, m=256.0, k=640.0), block, ARCH)
    assert ragged.terms["matrix"] == whole.terms["matrix"]
    assert ragged.shape["use_m"] == 129 / 256
    assert ragged.shape["use_n"] == 100 / 128
    assert ragged.shape["use_k"] == 577 / 640


def test_splitting_k_shortens_few_blocks_and_costs_memory() -> None:
    long = dataclasses.replace(ONE, k=64000.0, written_bytes=32768.0)
    split = dataclasses.replace(long, split=10.0)
    block = paced()
    whole, parts = estimate_problem(long, block, ARCH), estimate_problem(split, block, ARCH)
    assert (whole.shape["steps"], parts.shape["steps"]) == (1000, 100)
    assert parts.us < whole.us / 5
    assert parts.terms["launch"] == whole.terms["launch"] + ARCH.compute.launch_us
    # Ten parts, each read and written.
    more = (parts.terms["memory"] - whole.terms["memory"]) * ARCH.memory.bandwidth_gbs * 1e3
    assert more == pytest.approx(32768 * (2 * 10 - 1))
    # With enough tiles there is nothing to gain.
    many, many_parts = dataclasses.replace(long, batch=4096.0), dataclasses.replace(split, batch=4096.0)
    assert estimate_problem(many_parts, block, ARCH).us > estimate_problem(many, block, ARCH).us


def test_spilled_registers_cost_time() -> None:
    clean, spilled = paced(), paced(scratch_bytes=64.0)
    assert spilled.fetch - clean.fetch == 2 * 64 * 256 / 64
    assert in_units(ONE, spilled) > in_units(ONE, clean)


def test_terms_are_parts_of_the_time() -> None:
    found = estimate_problem(dataclasses.replace(ONE, batch=1000.0, read_bytes=1e8), paced(), ARCH)
    for name in ("matrix", "vector", "lds", "fetch", "latency", "l2", "memory", "ends", "launch"):
        assert 0 < found.terms[name] < found.us
    busiest = max(found.terms[name] for name in ("matrix", "vector", "lds", "fetch"))
    units = busiest + found.terms["latency"] + found.terms["ends"]
    together = (units**3 + found.terms["l2"] ** 3 + found.terms["memory"] ** 3) ** (1 / 3)
    assert found.us == pytest.approx(found.terms["launch"] + together)


RATES = [
    ("memory", "bandwidth_gbs"), ("memory", "l2_channels"), ("memory", "l2_bytes_per_clock"),
    ("memory", "l1_bytes_per_clock"), ("lds", "bytes_per_clock"), ("compute", "clock_mhz"), ("registers", "vgprs"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "name"), RATES)
@given(
    m=st.integers(1, 20000), n=st.integers(1, 20000), k=st.integers(1, 20000), arch=st.sampled_from(arch_names()),
    covered=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_faster_machine_is_never_slower(
    *, table: str, name: str, m: int, n: int, k: int, arch: str, covered: bool
) -> None:
    gpu = load(arch)
    more = changed(gpu, **{table: {name: 2 * getattr(getattr(gpu, table), name)}})
    sizes = BatchedGemmSizes(
        m=float(m), n=float(n), k=float(k), read_bytes=2.0 * (m + n) * k, written_bytes=2.0 * m * n
    )
    before, after = (
        estimate_problem(sizes, compute_loop_cost(tile(covered=float(covered)), each), each).us for each in (gpu, more)
    )
    assert after <= before * (1 + 1e-12)


def test_columns_give_the_same_numbers() -> None:
    blocks = [64.0, 128.0, 192.0, 256.0]
    columns = compute_loop_cost(tile(block_m=np.array(blocks)), ARCH)
    together = estimate_problem(ONE, columns, ARCH)
    for i, block in enumerate(blocks):
        single = estimate_problem(ONE, compute_loop_cost(tile(block_m=block), ARCH), ARCH)
        assert together.us[i] == pytest.approx(single.us, rel=1e-12)
        for name, term in single.terms.items():
            assert np.broadcast_to(together.terms[name], 4)[i] == pytest.approx(term, rel=1e-12)
