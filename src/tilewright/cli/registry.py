"""`tilewright registry`: kernels as a registry holds them, counted and as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.cli.command import FILE, CommandGroup, make_jobs_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.filters import FilterCommand, add_filter_options, add_set_options
from tilewright.cli.gpu_option import LATE, make_gpu_option
from tilewright.cli.kernel_arguments import read_arguments_by_op
from tilewright.cli.output import add_json_option, print_facts, print_json, print_table
from tilewright.cli.output_paths import OutputFile
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option

if TYPE_CHECKING:
    from tilewright.registry.registry import Registry

EXAMPLES = (
    "tilewright registry show fp16_rcr_essential --gpu gfx942 --json",
    "tilewright registry show --saved kernels.json",
)


@click.group("registry", cls=CommandGroup, examples=EXAMPLES)
def command() -> None:
    """Show kernels as a registry holds them."""


@command.command("show", cls=FilterCommand, examples=EXAMPLES)
@click.argument("subjects", metavar="[KERNELS]…", nargs=-1, shell_complete=complete_kernels)
@click.option("--saved", type=FILE, metavar="FILE", help="Show the registry that `registry.save` wrote to FILE.")
@make_gpu_option("gpu_target", "Show kernels for these GPUs, such as gfx942,gfx950.", default=LATE, several=True)
@add_filter_options
@add_set_options("Show")
@click.option("--profile", metavar="NAME", help="Keep only the kernels that an integration needs.")
@make_setting_option("VALUES", "Change a field of the set, or declare a space without one. May be repeated.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Show at most N kernels per GPU.")
@click.option("--build", is_flag=True, help="Build the kernels first: their registers and memory are shown, too.")
@make_jobs_option("Run N compilers in parallel, with --build.")
@click.option("--out", type=OutputFile(".json"), metavar="FILE", help="Also write the document to FILE (.json).")
@add_json_option
@click.pass_context
def show(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    saved: Path | None,
    gpu_target: tuple[str, ...],
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    tile_engine: Path | None,
    profile: str | None,
    settings: tuple[str, ...],
    limit: int | None,
    build: bool,
    jobs: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Count kernels, and print all that is known of them.

    They are counted by state, op, GPU and the values of their fields. KERNELS are given as for
    `build`; or --saved names the file of a registry. With --json you get one
    document: statistics, and for each kernel its fields, key, priority, failure and resources.
    `tw.Registry.load` reads it.
    """
    from tilewright.registry.registry import Registry

    if bool(subjects) == (saved is not None):
        raise InvalidValueError("no kernels are given, or in two ways: give either KERNELS or --saved FILE")
    with report_progress(as_json=as_json, steps=build):
        if saved is not None:
            registry = Registry.load(saved)
        else:
            with report_task("choosing kernels"):
                asked = read_arguments_by_op(
                    ctx, subjects, filters, preselected, kernel_set, profile, settings, tile_engine=tile_engine
                )
                chosen = [(each, gpu) for each in asked for gpu in each.resolve_gpus(gpu_target)]
                registry = Registry.of([kernel for each, gpu in chosen for kernel in each.choose_kernels(gpu, limit)])
        if build:
            registry = registry.build(jobs)
    if out is not None:
        registry.save(out, full=True)
    if as_json:
        print_json(registry.to_json(full=True))
    else:
        _print(registry, out)


def _print(registry: Registry, out: Path | None) -> None:
    statistics = registry.to_json(full=True)["statistics"]
    facts = [("kernels", f"{statistics['kernels']:,}")]
    facts += [(name, _format_counts(statistics[name])) for name in ("state", "op", "arch")]
    print_facts(facts)
    for op, fields in statistics["fields"].items():
        rows = [(name, _format_counts(counts)) for name, counts in fields.items()]
        click.echo()
        print_table(("field", "kernels by value"), rows, title=op)
    if out is not None:
        click.echo(f"\n{out}: the registry")


def _format_counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{value or '(none)'} {count:,}" for value, count in counts.items())
