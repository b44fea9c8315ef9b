"""`tilewright report`: the results of a sweep as one page with plots and sortable tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli.command import Command, Option
from tilewright.cli.output import add_json_option, format_count, print_json
from tilewright.cli.output_paths import OutputFile
from tilewright.cli.progress import report_progress
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.bench.journal_lines import DamagedLine


@click.command(
    cls=Command,
    examples=(
        "tilewright report journal --out page.html",
        "tilewright report records.parquet --out page.html --title 'GEMMs of May'",
    ),
)
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out", required=True, type=OutputFile(".html", ".htm"), metavar="FILE", help="The page to write (.html)."
)
@click.option("--title", cls=Option, default="", show_default="ops and GPUs", help="Title of the page.")
@add_json_option
def command(*, sources: tuple[Path, ...], out: Path, title: str, as_json: bool) -> None:
    """Write the results of a sweep as one HTML page.

    SOURCE is the folder of a journal, or a Parquet file that `tilewright data export` wrote. The page
    contains its plots, tables and script, and needs no network: a roofline, kernels × problems, the
    best tile by region, failures by reason, and all results in a sortable table. Results of an
    emulated device are shown as counters; they contain no times.
    """
    from tilewright.bench.report.style import require_plot_extra

    require_plot_extra("a report")
    from tilewright.bench.report.page import write_report
    from tilewright.bench.sources import open_sources

    with report_progress(as_json=as_json):
        opened = open_sources(*sources)
        damaged = opened.damaged
        notes = [_format_damage(damaged)] if damaged else []
        names = ", ".join(str(source) for source in sources)
        made = write_report(out, opened.iterate_records(), source=names, title=title, notes=notes)
    if as_json:
        print_json(
            {
                "page": str(out),
                "bytes": out.stat().st_size,
                "damaged": [str(each) for each in damaged],
                **made.to_json(),
            }
        )
        return
    for note in notes:
        print_remark(note)
    click.echo(
        f"{out}: {format_count(made.results, 'result')}, {made.right:,} right, {out.stat().st_size / 2**20:.1f} MiB"
    )
    for text in made.left_out:
        click.echo(f"left out: {text}")


def _format_damage(damaged: Sequence[DamagedLine]) -> str:
    more = f" and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
    return f"{format_count(len(damaged), 'line')} of the journal could not be read and is left out: {damaged[0]}{more}"
