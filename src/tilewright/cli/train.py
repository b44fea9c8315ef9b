"""`tilewright train`: train a model bundle from a table of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.cli.command import Command
from tilewright.cli.learning_options import (
    add_table_options,
    add_training_options,
    make_training_config,
    print_evaluation,
    read_dataset,
)
from tilewright.cli.output import add_json_option, format_count, print_json
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress


@click.command(
    cls=Command,
    examples=(
        "tilewright train times.parquet --op grouped_conv --gpu gfx950 --out conv_gfx950",
        "tilewright train times.parquet --out conv_gfx950 --tune 20 --report report",
    ),
)
@add_table_options
@click.option("--out", type=OutputFolder(), required=True, help="The folder of the bundle to write.")
@click.option("--report", type=OutputFolder(), metavar="DIR", help="Write a report page with plots into DIR.")
@add_training_options
@add_json_option
def command(
    *,
    table: Path,
    op_name: str | None,
    arch: str | None,
    out: Path,
    report: Path | None,
    tries: int,
    few: bool,
    as_json: bool,
    **recipe: Any,
) -> None:
    """Train a model that ranks kernels, and evaluate it.

    TABLE holds measurements or records (Parquet), or is the journal of a sweep. The bundle is a
    folder that `tilewright select` and the registry can use; an existing bundle is replaced. Its
    manifest has figures on problems that were not trained on, split first by problem, then by
    clusters of similar problems. The same table and options give the same bytes.
    """
    from tilewright.base.extras import require_learn_extra

    require_learn_extra("training")
    from tilewright.learn.bundle_writer import BundleInfo, collect_problem_values, format_held_out, write_bundle
    from tilewright.learn.evaluation import evaluate_config
    from tilewright.learn.report import write_report
    from tilewright.learn.training import fit_model

    made = make_training_config(**recipe)
    with report_progress(as_json=as_json):
        data = read_dataset(table, op_name, arch)
        found = evaluate_config(data, made, tries=tries, few=few)
        model = fit_model(data, made, tries=tries)
        about = BundleInfo(data=table.name, where=collect_problem_values(data), held_out=format_held_out(found))
        write_bundle(out, model, data, about)
        files = write_report(report, found, ranker=made.kind == "ranker") if report is not None else ()
    size = sum(len(text) for text in model.texts)
    if as_json:
        print_json(
            {
                "bundle": str(out),
                "op": data.op.name,
                "arch": data.arch.name,
                "trees": model.trees,
                "bytes": size,
                "recipe": model.recipe.to_json(),
                "held_out": format_held_out(found),
                "report": [str(file) for file in files],
            }
        )
        return
    print_evaluation(found)
    click.echo(
        f"\n{out}: {format_count(model.trees, 'tree')}, {size / 1000:,.0f} kB, for {data.op.name} on {data.arch.name}"
    )
    if files:
        click.echo(f"{files[0]}: the report")
