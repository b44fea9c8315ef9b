"""The cost model of memory-bound kernels, worked out by hand on an MI300X, and its limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.arch import Arch, arch_names, load
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts, ResourceUse
from tilewright.ops.cost_model.streaming import StreamedSizes, StreamingGroup, make_streaming_cost

ARCH = load("gfx942")
MILLION = 1_000_000


def make_cost(**fields: Any) -> CostModel:
    """The model of y = x in fp32. A problem is its n, a config the number of elements of a thread."""

    def group(items: int, _: Arch) -> StreamingGroup:
        values = {"elements": 256 * items, "threads": 256, "load_bytes": 4, "load_instructions": 7}
        return StreamingGroup(**(values | fields))

    return make_streaming_cost(lambda n: StreamedSizes(elements=n, read_bytes=4 * n, written_bytes=4 * n), group)


def estimate(n: int, items: int, arch: Arch = ARCH, use: ResourceUse | None = None, **fields: Any) -> Estimate:
    cost = make_cost(**fields)
    return cost.estimate(Facts(**cost.problem_numbers(n)), Facts(**cost.kernel_numbers(items, arch, use)), arch)


def test_a_work_group_worked_by_hand() -> None:
    found = estimate(256 * 1024, 1)
    compute = ARCH.compute
    assert found.shape["tiles"] == 1024
    blocks = math.ceil(1024 / compute.units)
    # 4 waves with 8 instructions (7 and the load), 4 clocks each, on 4 SIMDs.
    assert found.terms["vector"] == pytest.approx(blocks * 8 * 4 / compute.clock_mhz)
    assert found.terms["fetch"] == pytest.approx(blocks * 1024 / ARCH.memory.l1_bytes_per_clock / compute.clock_mhz)
    assert found.terms["memory"] == pytest.approx(2 * 4 * 256 * 1024 / (ARCH.memory.bandwidth_gbs * 1e3))
    assert found.terms["matrix"] == found.terms["lds"] == 0


@pytest.mark.parametrize("name", arch_names())
def test_large_problems_take_the_time_of_their_memory(name: str) -> None:
    arch = load(name)
    found = estimate(500 * MILLION, 8, arch)
    assert found.terms["memory"] < found.us < 2 * found.terms["memory"]


def test_small_problems_take_the_time_of_a_launch_and_latencies() -> None:
    found = estimate(1, 1)
    clock = ARCH.compute.clock_mhz
    assert found.us - ARCH.compute.launch_us < 4 * ARCH.memory.latency_clocks / clock
    assert found.us == pytest.approx(estimate(2, 1).us, rel=0.01)


def test_kernels_with_fewer_work_groups_have_fewer_rounds() -> None:
    single, several = estimate(100 * MILLION, 1), estimate(100 * MILLION, 8)
    assert several.shape["rounds"] < single.shape["rounds"]
    assert several.us < single.us


def test_registers_of_the_compiled_kernel_replace_the_estimate() -> None:
    use = ResourceUse(vgprs=256, agprs=0, sgprs=16, lds_bytes=0, scratch_bytes=0)
    assert estimate(MILLION, 1, use=use).shape["resident"] < estimate(MILLION, 1).shape["resident"]
    assert estimate(MILLION, 1, lds_bytes=65536).shape["resident"] == 1


def test_columns_and_features_give_the_same_numbers() -> None:
    cost, items = make_cost(), [1, 2, 4, 8]
    rows = [cost.kernel_numbers(each, ARCH, None) for each in items]
    p, columns = Facts(**cost.problem_numbers(MILLION)), Facts(**{k: np.array([r[k] for r in rows]) for k in rows[0]})
    together = cost.estimate(p, columns, ARCH)
    assert together.us == pytest.approx([estimate(MILLION, each).us for each in items])
    features = cost.features(p, columns, together, ARCH)
    assert all(np.all(np.isfinite(values)) for values in features.values())
