"""`tilewright evaluate`: how well a bundle, or a training config, chooses on measured problems."""

from __future__ import annotations

from dataclasses import asdict
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
from tilewright.cli.output import add_json_option, print_heading, print_json, print_table
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress

# Numbers of training problems on a learning curve.
CURVE = (5, 10, 20, 40, 80, 160, 320, 640)


@click.command(
    cls=Command,
    examples=(
        "tilewright evaluate times.parquet --bundle conv_gfx950",
        "tilewright evaluate times.parquet --op grouped_conv --gpu gfx950 --out report --curve",
    ),
)
@add_table_options
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Evaluate this bundle without training.",
)
@click.option(
    "--out", "--report", "report", type=OutputFolder(), metavar="DIR", help="Write a report page with plots into DIR."
)
@click.option("--curve", is_flag=True, help="Also train with fewer problems, to show how many are needed.")
@add_training_options
@add_json_option
def command(
    *,
    table: Path,
    op_name: str | None,
    arch: str | None,
    bundle: Path | None,
    report: Path | None,
    curve: bool,
    tries: int,
    few: bool,
    as_json: bool,
    **recipe: Any,
) -> None:
    """Compare chosen kernels with the fastest measured ones.

    TABLE holds measurements or records (Parquet), or is the journal of a sweep. Without --bundle,
    models are trained for each fold and evaluated on problems that they have not seen, split first by
    problem, then by clusters of similar problems. The results of the analytical model and of three
    baselines are shown next to those of the learned model.
    """
    from tilewright.base.extras import require_learn_extra

    require_learn_extra("evaluating")
    from tilewright.learn.evaluation import compute_learning_curve, evaluate_bundle, evaluate_config
    from tilewright.learn.report import find_worst_choices, write_report
    from tilewright.select.bundle import RELEVANCE, read_bundle

    made = make_training_config(**recipe)
    with report_progress(as_json=as_json):
        data = read_dataset(table, op_name, arch)
        ranker = made.kind == "ranker"
        if bundle is not None:
            read = read_bundle(bundle)
            found, ranker = evaluate_bundle(data, read), read.transform == RELEVANCE
        else:
            found = evaluate_config(data, made, tries=tries, few=few)
        sizes = [size for size in CURVE if size < 0.8 * len(data.problems)]
        points = compute_learning_curve(data, made, [*sizes, len(data.problems)]) if curve else ()
        files = write_report(report, found, curve=points, ranker=ranker) if report is not None else ()
    if as_json:
        print_json(
            {
                "op": data.op.name,
                "arch": data.arch.name,
                "subject": found.subject,
                "seen": found.seen,
                "splits": found.to_json(),
                "worst": [each.to_json() for each in find_worst_choices(found)],
                "curve": [asdict(point) for point in points],
                "report": [str(file) for file in files],
            }
        )
        return
    print_evaluation(found)
    if points:
        print_heading("Mean efficiency by number of training problems, %")
        rows = [(str(p.problems), f"{100 * p.learned:.2f}", f"{100 * p.analytical:.2f}") for p in points]
        print_table(("problems", "learned", "analytical"), rows, numbers=("problems", "learned", "analytical"))
    if files:
        click.echo(f"\n{files[0]}: the report")
