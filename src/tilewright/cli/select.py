"""`tilewright select`: which kernel is selected for a problem, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.cli.command import FILE, make_jobs_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.filters import FilterCommand, add_filter_options, add_set_options
from tilewright.cli.gpu_option import LATE, make_gpu_option
from tilewright.cli.kernel_arguments import read_kernel_arguments
from tilewright.cli.output import add_json_option, format_count, print_facts, print_heading, print_json, print_table
from tilewright.cli.problems import read_open_problem
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option

if TYPE_CHECKING:
    from tilewright.registry.registry import Registry
    from tilewright.select.selection import Candidate, Selection

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# Rejected kernels that --explain names.
NAMED = 3


@click.command(
    cls=FilterCommand,
    examples=(
        "tilewright select fp16_rcr_essential --gpu gfx942 --problem m=4096,n=4096,k=4096 --explain",
        "tilewright select grouped_conv --gpu gfx950 --datatype bf16 --explain --top 5 \\",
        "    --problem direction=forward,n=32,c=64,k=64,input_size=56x56,filter_size=3x3,pad=1,dtype=bf16",
    ),
)
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
@make_gpu_option("gpu_target", "Select for this GPU, such as gfx942.", default=LATE)
@click.option(
    "--problem", "text", required=True, metavar="FIELD=N,…", help="The problem: all fields that the kernels do not fix."
)
@add_filter_options
@add_set_options("Choose from")
@make_setting_option("VALUES", "Change a field of the set, or declare a space without one. May be repeated.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Choose from the first N kernels.")
@click.option("--build", is_flag=True, help="Build the kernels and use their actual registers and LDS.")
@make_jobs_option("Run N compilers in parallel, with --build.")
@click.option("--pad", is_flag=True, help="Also use kernels that compute a larger, padded problem.")
@click.option("--tuned", type=FILE, metavar="FILE", help="Use a table of measured winners (.json).")
@click.option(
    "--bundle",
    "bundles",
    type=FOLDER,
    multiple=True,
    metavar="DIR",
    help="Use this learned model instead of the built-in ones. May be repeated.",
)
@click.option("--no-bundles", is_flag=True, help="Use no learned models, only the estimate.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show the full ranking, a breakdown of each estimate, and why kernels were rejected.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="List N kernels.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    gpu_target: str | None,
    text: str,
    preselected: str | None,
    kernel_set: Path | None,
    tile_engine: Path | None,
    settings: tuple[str, ...],
    limit: int | None,
    build: bool,
    jobs: int | None,
    pad: bool,
    tuned: Path | None,
    bundles: tuple[Path, ...],
    no_bundles: bool,
    explain: bool,
    top: int,
    as_json: bool,
    filters: Mapping[str, tuple[str, ...]],
) -> None:
    """Show which kernel is selected for a problem, and why.

    KERNELS are preselected sets, kernel-set files (.toml, .json), and kernel names or digests; a
    kernel name contains its GPU. Or KERNELS is an op: its kernels come from --preselected,
    --kernel-set or --tile-engine, from a space that -s declares, or from all its preselected sets for
    the GPU. They need not be built.

    Kernels that do not support the problem are rejected. The others are ranked by measurements of
    exactly this problem (--tuned), by an estimate that needs no measurements, and by a learned model
    where one covers such problems. Times are in microseconds.

    The exit code is 2 if no kernel supports the problem; the message names the nearest kernels.
    """
    from tilewright.registry.registry import Registry

    if no_bundles and bundles:
        raise InvalidValueError("--bundle and --no-bundles exclude each other: give one of them")
    with report_progress(as_json=as_json):
        with report_task("choosing kernels"):
            given = [pair.partition("=")[0] for pair in text.split(",")]
            asked = read_kernel_arguments(
                ctx, subjects, filters, preselected, kernel_set, None, settings, given, tile_engine
            )
            gpu = asked.resolve_gpu(gpu_target)
            kernels = list(asked.choose_kernels(gpu, limit))
            problem = read_open_problem(asked.op, kernels, text)
        registry = Registry.of(kernels)
        if build:
            registry = registry.build(jobs)
        if no_bundles or bundles:
            registry = registry.with_bundles(*bundles)
        if tuned is not None:
            registry = registry.with_tuned(tuned)
        with report_task("ranking kernels"):
            selection = _select_kernels(registry, problem, gpu, pad, build)
    if as_json:
        print_json(_to_json(selection, top))
    elif explain:
        _print_explanation(selection, top)
    else:
        for part in selection.stages:
            click.echo(f"{part.best.kernel.slug}\n  {part.best.why}")
            if tuned is not None:  # also if it has no entry, or one that cannot be used
                click.echo(f"  {part.steps[0]}")


def _select_kernels(registry: Registry, problem: Any, arch: str, pad: bool, built: bool) -> Selection:
    selection = registry.select(problem, arch, pad=pad, built=built)
    _ = selection.best  # an error that names the nearest kernels, if there is none
    return selection


def _print_explanation(selection: Selection, top: int) -> None:
    for number, part in enumerate(selection.stages, 1):
        stage = f"stage {number}: " if selection.parts else ""
        print_heading(f"{stage}{_format_problem(part)} on {part.arch}")
        print_facts([(step.name, step.what) for step in part.steps])
        _print_candidates(part.choices[:top], len(part.choices))
        _print_rejected(part)


def _format_problem(part: Selection) -> str:
    from tilewright.ops.problem_text import format_short_problem

    return format_short_problem(part.problem)


def _print_candidates(choices: Sequence[Candidate], count: int) -> None:
    terms = [name for name in choices[0].terms if any(choice.terms.get(name, 0.0) >= 0.005 for choice in choices)]
    rows = [
        [str(rank), _format_number(choice.us), *(_format_number(choice.terms.get(name)) for name in terms)]
        for rank, choice in enumerate(choices, 1)
    ]
    print_heading(f"{format_count(count, 'kernel')} can compute it; times in µs, each term without overlap")
    print_table(["", "time", *terms], rows, numbers=["", "time", *terms])
    click.echo()
    for rank, choice in enumerate(choices, 1):
        click.echo(f"{rank:>3}. {choice.kernel.slug}\n     {choice.why}")


def _print_rejected(part: Selection) -> None:
    if not part.rejected:
        return
    print_heading(f"{format_count(len(part.rejected), 'kernel')} rejected, the nearest first")
    for rejection in part.rejected[:NAMED]:
        click.echo(f"  –  {rejection}")
    if len(part.rejected) > NAMED:
        click.echo(f"     … and {len(part.rejected) - NAMED:,} more")


def _format_number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _to_json(selection: Selection, top: int) -> dict[str, Any]:
    from tilewright.ops.problem_values import list_all_fields

    return {
        "arch": selection.arch,
        "stages": [
            {
                "problem": list_all_fields(part.problem),
                "steps": {step.name: step.what for step in part.steps},
                "can": len(part.choices),
                "cannot": len(part.rejected),
                "choices": [_describe_candidate(choice) for choice in part.choices[:top]],
                "rejected": [
                    {"kernel": each.kernel.slug, "reasons": list(each.reasons)} for each in part.rejected[:NAMED]
                ],
            }
            for part in selection.stages
        ],
    }


def _describe_candidate(choice: Candidate) -> dict[str, Any]:
    return {
        "kernel": choice.kernel.slug,
        "score": choice.score,
        "us": choice.us,
        "terms": dict(choice.terms),
        "why": choice.why,
        "padded": choice.padded is not None,
    }
