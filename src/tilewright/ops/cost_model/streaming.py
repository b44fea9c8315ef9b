"""The cost model of memory-bound kernels: a work-group reads its part, computes with it and writes, without matrices.

The units in which a problem is divided are up to the op: elements of a vector, rows of a matrix. A work-group is one
step of the tiled model, so its assumptions about overlapped work and rounds of work-groups hold here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number, ceil_div, log2, make_floats, maximum
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts, ResourceUse
from tilewright.ops.cost_model.estimate_features import compute_estimate_features, compute_hardware_features
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.cost_model.tiled import LoopCost, TileCounts, estimate_tiles


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamedSizes:
    """A problem: its elements, and the bytes that must be read from memory and written to it, each once."""

    elements: int
    read_bytes: float
    written_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingGroup:
    """One work-group of a kernel. Instructions are vector instructions of one wave."""

    elements: int
    threads: int
    load_bytes: float  # that a lane loads at once
    load_instructions: float  # for each load: addresses, arithmetic, stores
    setup_instructions: float = 10.0  # before the first load
    waits: float = 1.0  # for loads, one after the other
    registers: int = 32  # of a lane; those of the compiled kernel once it is built
    lds_bytes: int = 0


def make_streaming_cost(
    sizes: Callable[[Any], StreamedSizes],
    group: Callable[[Any, Arch], StreamingGroup],
    in_c: CModelInputs | None = None,
) -> CostModel:
    """The cost model of an op with memory-bound kernels, from the sizes of a problem and the work-group of a config.

    With `in_c`, `sizes` is translated to C, so it uses only `arithmetic` on numbers of the problem.
    """

    def compute_problem_inputs(problem: Any) -> Mapping[str, float]:
        found = sizes(problem)
        return make_floats({name: getattr(found, name) for name in StreamedSizes.__slots__})

    def compute_kernel_inputs(config: Any, arch: Arch, use: ResourceUse | None) -> Mapping[str, float]:
        found = group(config, arch)
        use = use or ResourceUse(found.registers, 0, 0, found.lds_bytes, 0)
        inputs = {name: float(getattr(found, name)) for name in StreamingGroup.__slots__}
        return {**inputs, "resident": use.count_resident_groups(arch, found.threads)}

    return CostModel(
        problem_numbers=compute_problem_inputs,
        kernel_numbers=compute_kernel_inputs,
        estimate=estimate_streaming,
        features=_compute_features,
        in_c=in_c,
    )


def estimate_streaming(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """The time of a memory-bound kernel for a problem, from model inputs with the names of the two classes above."""
    simds, wave = float(arch.compute.simds_per_unit), float(arch.wave_size)
    issue = wave / arch.compute.lanes_per_simd
    latency = float(arch.memory.latency_clocks)
    waves = ceil_div(k.threads, wave)
    rows, idle = maximum(1.0, waves / simds), maximum(1.0, simds / waves)
    tiles = ceil_div(p.elements, k.elements)
    read = p.read_bytes / tiles
    vector = issue * (k.load_instructions + 1) * read / (k.load_bytes * wave) / simds
    fetch = read / arch.memory.l1_bytes_per_clock
    busiest = maximum(vector, fetch)
    setup = issue * k.setup_instructions * waves / simds
    cost = LoopCost(
        block_m=k.elements,
        block_n=1.0,
        block_k=1.0,
        resident=k.resident,
        matrix=0.0,
        vector=vector,
        lds=0.0,
        fetch=fetch,
        busiest=busiest,
        alone=vector * idle / rows + fetch / rows + (rows - 1) / rows * busiest + k.waits * latency,
        lines_bytes=read,
        setup=setup * idle + latency,
        setup_busiest=setup,
        extra_steps=0.0,
        store_bytes=0.0,
    )
    work = TileCounts(
        tiles=tiles,
        steps=1.0,
        stored=p.written_bytes / tiles * arch.memory.store_cost,
        memory_bytes=p.read_bytes + p.written_bytes,
        use_m=p.elements / (tiles * k.elements),
        use_n=1.0,
        use_k=1.0,
    )
    return estimate_tiles(work, cost, arch)


def _compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    return {
        **{f"log_{name}": log2(getattr(p, name) + 1) for name in StreamedSizes.__slots__},
        **{f"log_group_{name}": log2(getattr(k, name)) for name in ("elements", "threads", "load_bytes")},
        "resident": k.resident,
        **compute_hardware_features(arch),
        **compute_estimate_features(estimate),
    }
