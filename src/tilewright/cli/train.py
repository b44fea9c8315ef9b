"""`tilewright train`: train a model bundle from a table of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.cli.command import Command
from tilewright.cli.learning import dataset_of, print_evaluation, recipe_of, recipe_options, table_options
from tilewright.cli.output import json_option, plural, print_json
from tilewright.cli.outputs import OutputFolder
from tilewright.cli.progress import progress


@click.command(
    cls=Command,
    examples=(
        "tilewright train times.parquet --op grouped_conv --gpu gfx950 --out conv_gfx950",
        "tilewright train times.parquet --out conv_gfx950 --tune 20 --report report",
    ),
)
@table_options
@click.option("--out", type=OutputFolder(), required=True, help="The folder of the bundle to write.")
@click.option("--report", type=OutputFolder(), metavar="DIR", help="Write a report page with plots into DIR.")
@recipe_options
@json_option
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
    from tilewright.learn.extras import need_extras

    need_extras("training")
    from tilewright.learn.bundle_writer import About, held_out_facts, seen_values, write_bundle
    from tilewright.learn.evaluation import evaluate_recipe
    from tilewright.learn.report import write_report
    from tilewright.learn.training import fitted

    made = recipe_of(**recipe)
    with progress(as_json=as_json):
        data = dataset_of(table, op_name, arch)
        found = evaluate_recipe(data, made, tries=tries, few=few)
        model = fitted(data, made, tries=tries)
        about = About(data=table.name, where=seen_values(data), held_out=held_out_facts(found))
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
                "held_out": held_out_facts(found),
                "report": [str(file) for file in files],
            }
        )
        return
    print_evaluation(found)
    click.echo(f"\n{out}: {plural(model.trees, 'tree')}, {size / 1000:,.0f} kB, for {data.op.name} on {data.arch.name}")
    if files:
        click.echo(f"{files[0]}: the report")
