"""`tilewright arch`: list, show and check GPU files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.command import FILE, Command, CommandGroup
from tilewright.cli.completion import complete_gpus
from tilewright.cli.gpu_option import resolve_gpu
from tilewright.cli.output import (
    add_json_option,
    format_count,
    mark_bad,
    mark_good,
    print_facts,
    print_heading,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch


@click.group("arch", cls=CommandGroup, examples=("tilewright arch list", "tilewright arch show gfx942 --json"))
def command() -> None:
    """List, show and check the files that describe GPUs."""


@command.command("list", cls=Command, examples=("tilewright arch list",))
@add_json_option
def list_archs(as_json: bool) -> None:
    """List the known GPUs and their main properties."""
    from tilewright import arch as gpus

    specs = [gpus.load(name) for name in gpus.arch_names()]
    if as_json:
        print_json([_make_summary(spec) for spec in specs])
        return
    headings = ("GPU", "product", "family", "matrix", "wave", "units", "LDS KiB", "GB/s", "tiles")
    rows = [
        (
            spec.name,
            spec.product,
            spec.family,
            spec.matrix,
            str(spec.wave_size),
            str(spec.compute.units),
            f"{spec.lds.bytes / 1024:g}",
            f"{spec.memory.bandwidth_gbs:g}",
            str(sum(len(shapes) for shapes in spec.mma.values())),
        )
        for spec in specs
    ]
    print_table(headings, rows, numbers=headings[4:], whole=("GPU",))


@command.command("show", cls=Command, examples=("tilewright arch show gfx942", "tilewright arch show MI300X"))
@click.argument("name", metavar="GPU", shell_complete=complete_gpus)
@add_json_option
def print_arch(name: str, as_json: bool) -> None:
    """Show hardware facts and matrix instructions of a GPU.

    GPU is a name (gfx942) or a product name (MI300X).
    """
    from tilewright import arch as gpus

    spec = gpus.load(resolve_gpu(name))
    if as_json:
        print_json(_to_json(spec))
        return
    click.echo(f"{click.style(spec.name, bold=True)}  {spec.product} ({spec.family})")
    print_facts([("file", spec.source), *_describe_hardware(spec)])
    print_heading("Matrix tiles")
    rows = [
        (_format_triple(str(triple)) if first else "", str(shape), instruction)
        for triple, shapes in spec.mma.items()
        for first, (shape, instruction) in _mark_first(shapes)
    ]
    print_table(("types", "tile", "instruction"), rows, whole=("types", "tile"))
    waves = ", ".join(str(shape) for shape in spec.waves)
    click.echo()
    print_facts([("waves per work-group", waves)])


@command.command("check", cls=Command, examples=("tilewright arch check my_gpus/gfx999.toml",))
@click.argument("file", type=FILE)
@add_json_option
@click.pass_context
def check_file(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Check a GPU file and list every error in it.

    The exit code is 1 if there is an error.
    """
    from tilewright import arch as gpus
    from tilewright.base.errors import FileFormatError

    problems: list[Any] = []
    name = None
    try:
        name = gpus.load_file(file).name
    except FileFormatError as error:
        problems = list(error.problems)
    if as_json:
        listed = [dataclasses.asdict(problem) for problem in problems]
        print_json({"file": str(file), "ok": not problems, "arch": name, "problems": listed})
    elif problems:
        click.echo(f"{mark_bad(format_count(len(problems), 'problem'))} in {file}")
        for problem in problems:
            click.echo(f"  {problem}")
    else:
        click.echo(f"{mark_good('good:')} {file} describes {name}")
    ctx.exit(1 if problems else 0)


def _mark_first(shapes: Any) -> list[tuple[bool, Any]]:
    return [(index == 0, item) for index, item in enumerate(shapes.items())]


def _format_triple(triple: str) -> str:
    return triple.replace("_", " ")


def _get_identity(spec: Arch) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in ("name", "product", "family", "matrix", "wave_size")}


def _make_summary(spec: Arch) -> dict[str, Any]:
    return {
        **_get_identity(spec),
        "units": spec.compute.units,
        "lds_bytes": spec.lds.bytes,
        "bandwidth_gbs": spec.memory.bandwidth_gbs,
        "matrix_tiles": sum(len(shapes) for shapes in spec.mma.values()),
        "source": spec.source,
    }


def _to_json(spec: Arch) -> dict[str, Any]:
    return {
        **_get_identity(spec),
        "compute": dataclasses.asdict(spec.compute),
        "registers": dataclasses.asdict(spec.registers),
        "lds": dataclasses.asdict(spec.lds),
        "memory": dataclasses.asdict(spec.memory),
        "numbers": dataclasses.asdict(spec.numbers),
        "peak_tflops": dict(spec.peak_tflops),
        "waves": [str(shape) for shape in spec.waves],
        "mma": [
            {**triple._asdict(), "tile": str(shape), "instruction": instruction}
            for triple, shapes in spec.mma.items()
            for shape, instruction in shapes.items()
        ],
        "op": {name: dict(table) for name, table in spec.op_tables.items()},
        "source": spec.source,
    }


def _describe_hardware(spec: Arch) -> list[tuple[str, str]]:
    compute, registers, lds, memory = spec.compute, spec.registers, spec.lds, spec.memory
    scalar = f"{registers.sgprs} shared" if registers.sgprs else "a fixed set per wave"
    peaks = ", ".join(f"{name} {rate:g}" for name, rate in spec.peak_tflops.items())
    subnormal = "flushed to zero" if spec.numbers.halves_flushed else "kept"
    last_level = f", {_format_bytes(memory.mall_bytes)} last-level" if memory.mall_bytes else ""
    return [
        (
            "compute",
            f"{compute.units} units of {compute.simds_per_unit} SIMDs on "
            f"{format_count(compute.dies, 'die')}, {compute.clock_mhz:,} MHz, waves of {spec.wave_size}",
        ),
        (
            "residency",
            f"at most {compute.max_waves_per_simd} waves per SIMD, {compute.max_blocks_per_unit} "
            f"work-groups per unit, {compute.max_block_threads:,} threads per work-group",
        ),
        (
            "vector registers",
            f"{registers.vgprs} per lane of a SIMD, at most {registers.max_vgprs} per wave, "
            f"in steps of {registers.vgpr_granule}; AGPRs: {registers.agprs}",
        ),
        ("scalar registers", f"{scalar}, at most {registers.max_sgprs} per wave"),
        (
            "LDS",
            f"{_format_bytes(lds.bytes)} per work-group, {_format_bytes(lds.unit_bytes)} per unit, "
            f"in steps of {lds.granule:,} bytes, {lds.banks} banks",
        ),
        (
            "memory",
            f"{memory.capacity_gib} GiB, {memory.bandwidth_gbs:,g} GB/s, "
            f"{_format_bytes(memory.l2_bytes)} L2 per die{last_level}",
        ),
        ("peak TFLOPS", f"{peaks} (dense {spec.matrix})"),
        ("numbers", f"8-bit floats as {spec.numbers.fp8}; subnormal fp16 and bf16 {subnormal} by {spec.matrix}"),
    ]


def _format_bytes(count: int) -> str:
    for size, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
