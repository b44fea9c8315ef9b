"""`tilewright compare`: how the estimate's ranking agrees with that of another tool's trained model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.events import report_task
from tilewright.cli.command import FILE, make_format_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.filters import FilterCommand, add_filter_options, add_set_options
from tilewright.cli.gpu_option import LATE, make_gpu_option
from tilewright.cli.kernel_arguments import read_kernel_arguments
from tilewright.cli.output import add_json_option, print_facts, print_json, print_table
from tilewright.cli.problems import read_listed_problems
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option

if TYPE_CHECKING:
    from tilewright.learn.other_model import Comparison

NOTE = "This compares two models with each other. No time of a GPU is in it: it does not tell which of them is right."
COLUMNS = ("kind", "problems", "kernels", "rank correlation", "P10", "same first", "by chance", "place")


@click.command(
    cls=FilterCommand,
    short_help="Compare the estimate with another tool's model.",
    examples=(
        "tilewright compare models/grouped_conv_bwd_data_bf16_gfx950 grouped_conv --gpu gfx950 \\",
        "    --datatype bf16 --variants backward_data --problems shapes.csv",
    ),
)
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="MODEL")
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
@make_gpu_option("gpu_target", "Rank kernels for this GPU, the one that the model was trained for.", default=LATE)
@click.option(
    "--problems", "file", type=FILE, required=True, metavar="FILE", help="Rank for the problems of this file."
)
@make_format_option()
@add_filter_options
@add_set_options("Rank kernels of")
@make_setting_option("VALUES", "Change a field of the set, or declare a space without one. May be repeated.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    model: Path,
    subjects: tuple[str, ...],
    gpu_target: str | None,
    file: Path,
    file_format: str | None,
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    tile_engine: Path | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the estimate's ranking with that of another tool's trained model.

    MODEL is your copy of a model of CK Tile's dispatcher: a folder with model_tflops.lgbm or
    model_tflops.lgbm.gz, and feature_spec.json. AMD publishes such models for bf16 convolutions on
    gfx950, one for each direction. KERNELS are given as for `select`.

    For each problem, the kernels that support it are ranked twice. The result has the rank
    correlation of both orders, how often the model ranks the estimate's choice first, and the mean
    place of that choice in the model's order: 0 is first, 1 is last. It is another model's opinion,
    not a measurement; `evaluate` compares with measured times.
    """
    from tilewright import arch as archs
    from tilewright.base.extras import require_learn_extra

    require_learn_extra("reading a LightGBM model")
    from tilewright.learn.other_model import compare_rankings, read_other_model

    asked = read_kernel_arguments(
        ctx, subjects, filters, preselected, kernel_set, None, settings, tile_engine=tile_engine
    )
    arch = archs.load(asked.resolve_gpu(gpu_target))
    with report_progress(as_json=as_json):
        with report_task("choosing kernels"):
            kernels = list(asked.choose_kernels(arch.name))
        problems = read_listed_problems(asked.op, kernels, file, file_format)
        read = read_other_model(model, asked.op)
        found = compare_rankings(read, asked.op, arch, kernels, problems)
    if as_json:
        agreements = [each.to_json() for each in found.agreements]
        print_json({"model": read.name, "note": NOTE, "agreements": agreements, "left_out": dict(found.left_out)})
    else:
        _print(read.name, found)


def _print(name: str, found: Comparison) -> None:
    rows = [
        (
            *(each.kind, f"{each.problems:,}", f"{each.kernels:.1f}", f"{each.correlation:.3f}"),
            *(f"{each.correlation_p10:.3f}", f"{each.same_first:.1%}", f"{each.same_first_by_chance:.1%}"),
            f"{each.place:.2f}",
        )
        for each in found.agreements
    ]
    print_table(COLUMNS, rows, numbers=COLUMNS[1:], title=f"the estimate and {name}")
    if found.left_out:
        click.echo()
        print_facts([(f"{count:,} left out", reason) for reason, count in found.left_out.items()])
    click.echo(f"\n{NOTE}")
