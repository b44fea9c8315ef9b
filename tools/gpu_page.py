"""Make docs/reference/gpus.md: supported kernels and hardware facts of each GPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from config_samples import draw_legal, list_strata
from markdown_text import format_code, format_page, format_table
from tilewright import arch as archs
from tilewright.arch.dtypes import ACCUMULATORS
from tilewright.arch.spec import Arch
from tilewright.ops import OPS
from tilewright.ops.fields import ConfigBase
from tilewright.ops.op import Op


def make_gpus_page() -> str:
    """Document the supported kernels and the hardware facts of each GPU."""
    specs = [archs.load(name) for name in archs.arch_names()]
    names = [spec.name for spec in specs]
    intro = (
        "A GPU is a file in `src/tilewright/arch/data/`, where every number has its source. To write your own, see\n"
        "[add a GPU](../add-a-gpu.md)."
    )
    types = [
        (f"{a} × {b} → {acc}", *(str(len(spec.mma_shapes(a, b, acc)) or "") for spec in specs))
        for (a, b), acc in ACCUMULATORS.items()
    ]
    return format_page(
        "GPUs",
        intro,
        "## Kinds of kernels",
        "✓: the rules allow at least one kernel of this kind.",
        *(_format_kinds(op, specs) for op in OPS),
        "## Matrix tiles by types",
        "How many matrix tiles CK Tile has on a GPU for inputs A × B and their accumulator.",
        format_table(("types", *names), types, names),
        "## Hardware",
        "The waves of one work-group share a unit: a compute unit on CDNA, a work-group processor on RDNA.",
        format_table(("", *names), _iterate_facts(specs), names),
        *(_format_tiles(spec) for spec in specs),
    )


def _format_kinds(op: Op, specs: Sequence[Arch]) -> str:
    found = {spec.name: _find_kinds(op, spec) for spec in specs}
    every = dict.fromkeys(kind for kinds in found.values() for kind in kinds)
    positions = {name: list(op.list_candidates(name, specs[0])) for name in op.structure_fields}
    order = sorted(
        every, key=lambda kind: [positions[n].index(v) for n, v in zip(op.structure_fields, kind, strict=True)]
    )
    rows = [(*kind, *("✓" if kind in found[spec.name] else "" for spec in specs)) for kind in order]
    return f"### {op.name}\n\n{format_table((*op.structure_fields, *found), rows)}"


def _find_kinds(op: Op, arch: Arch) -> dict[tuple[Any, ...], ConfigBase]:
    """Find the kinds with a legal kernel on a GPU, and one such config for each."""
    found: dict[tuple[Any, ...], ConfigBase] = {}
    for fixed in list_strata(op, arch):
        kind = tuple(fixed[name] for name in op.structure_fields)
        if kind not in found:
            config = draw_legal(op, arch, random.Random(0), fixed)
            if config is not None:
                found[kind] = config
    return found


def _iterate_facts(specs: Sequence[Arch]) -> Iterator[tuple[str, ...]]:
    facts: tuple[tuple[str, Callable[[Arch], object]], ...] = (
        ("product", lambda s: s.product),
        ("family", lambda s: s.family),
        ("matrix instructions", lambda s: s.matrix),
        ("lanes of a wave", lambda s: s.wave_size),
        ("units", lambda s: s.compute.units),
        ("SIMDs per unit", lambda s: s.compute.simds_per_unit),
        ("waves per SIMD", lambda s: s.compute.max_waves_per_simd),
        ("threads per work-group", lambda s: s.compute.max_block_threads),
        ("clock, MHz", lambda s: s.compute.clock_mhz),
        ("dies", lambda s: s.compute.dies),
        ("vector registers per SIMD lane", lambda s: s.registers.vgprs),
        ("… of one wave at most", lambda s: s.registers.max_vgprs),
        ("accumulation registers", lambda s: s.registers.agprs),
        ("LDS per work-group, KiB", lambda s: f"{s.lds.bytes / 1024:g}"),
        ("LDS per unit, KiB", lambda s: f"{s.lds.unit_bytes / 1024:g}"),
        ("memory, GiB", lambda s: s.memory.capacity_gib),
        ("memory, GB/s", lambda s: f"{s.memory.bandwidth_gbs:g}"),
        ("cache line, bytes", lambda s: f"{s.memory.line_bytes}"),
        ("encoding of 8-bit floats", lambda s: s.numbers.fp8),
        ("16-bit matrix instructions flush subnormals", lambda s: "yes" if s.numbers.halves_flushed else "no"),
        ("L2 per die, MiB", lambda s: f"{s.memory.l2_bytes / 2**20:g}"),
        ("last-level cache, MiB", lambda s: f"{s.memory.mall_bytes / 2**20:g}"),
    )
    for name, read in facts:
        yield name, *(str(read(spec)) for spec in specs)
    for dtype in dict.fromkeys(name for spec in specs for name in spec.peak_tflops):
        rates = (spec.peak_tflops.get(dtype) for spec in specs)
        yield f"peak {dtype}, 10¹² operations/s", *("" if rate is None else f"{rate:g}" for rate in rates)


def _format_tiles(arch: Arch) -> str:
    rows = []
    for types, shapes in arch.mma.items():
        by_instruction: dict[str, list[str]] = {}
        for shape, instruction in shapes.items():
            by_instruction.setdefault(instruction, []).append(str(shape))
        for name, tiles in by_instruction.items():
            rows.append((f"{types.a} × {types.b} → {types.acc}", ", ".join(tiles), format_code(name)))
    waves = ", ".join(str(shape) for shape in arch.waves)
    title = f"## {arch.name}: {arch.product}"
    return f'{title}\n\nWaves that `"*"` tries: {waves}.\n\n{format_table(("types", "tiles", "instruction"), rows)}'
