"""`tilewright data`: export, query, merge and import records of sweeps."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import math
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import FileFormatError, InvalidValueError, choose
from tilewright.cli.command import CommandGroup
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.output import add_json_option, format_count, print_json, print_table
from tilewright.cli.output_paths import OutputFile, OutputFolder
from tilewright.cli.progress import report_progress
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.bench.journal_lines import DamagedLine

PATH = click.Path(exists=True, path_type=Path)
SHAPES = ("records", "measurements")
# Damaged lines that are printed one by one; --json has all of them.
MOST_DAMAGED_LINES = 10
# Rows of a query result that are printed as a table.
SHOWN = 200


@click.group(
    cls=CommandGroup,
    examples=(
        "tilewright data export sweep --out records.parquet",
        'tilewright data query "SELECT status, count(*) FROM records GROUP BY status" sweep',
        "tilewright data import tile_engine results.json --gpu gfx942 --out imported",
        "tilewright data merge node1 node2 --out all",
    ),
)
def command() -> None:
    """Export, query, merge and import records of sweeps.

    A source is a journal (a folder, or one .jsonl file) or a table of records (.parquet). Of several
    records with the same key, a successful one counts rather than a failure, else the latest. Damaged
    lines of a journal are reported and skipped.
    """


def _add_sources_argument(command: Any) -> Any:
    return click.argument("sources", metavar="SOURCE…", nargs=-1, required=True, type=PATH)(command)


@command.command(
    "export",
    examples=(
        "tilewright data export sweep --out records.parquet",
        "tilewright data export node1 node2 --out times.parquet --as measurements --gpu MI300X",
    ),
)
@_add_sources_argument
@click.option("--out", type=OutputFile(".parquet"), required=True, help="The table to write (.parquet).")
@click.option(
    "--as",
    "shape",
    default=SHAPES[0],
    show_default=True,
    metavar="SHAPE",
    help="Write records, or measurements to train on.",
)
@click.option("--cold/--warm", "cold", default=None, help="Export only measurements with cold or with warm caches.")
@click.option(
    "--gpu", metavar="TEXT", help="Export only records of GPUs whose model name contains TEXT, such as MI300X."
)
@add_json_option
def export_command(
    *, sources: tuple[Path, ...], out: Path, shape: str, cold: bool | None, gpu: str | None, as_json: bool
) -> None:
    """Write records as one Parquet table.

    A table of `records` holds everything: times, counters, failures and their reasons. A table of
    `measurements` is the input of `tilewright train` and `evaluate`: it holds times only, and records
    with counters are rejected.
    """
    from tilewright.bench.gpu_model import filter_by_model
    from tilewright.bench.sources import open_sources
    from tilewright.bench.table import export_table

    choose("shape of a table", shape, SHAPES)
    if cold is not None and shape != "measurements":
        raise InvalidValueError("--cold and --warm are for --as measurements: a table of records holds both")
    with report_progress(as_json=as_json):
        opened = open_sources(*sources)
        records = opened.iterate_records() if gpu is None else filter_by_model(opened.iterate_records(), gpu)
        if shape == "records":
            rows = export_table(records, out, counters=opened.list_counters())
        else:
            from tilewright.learn.from_records import to_measurements
            from tilewright.learn.measurements import write_measurements

            table = to_measurements(records, cold=cold)
            write_measurements(out, table)
            rows = len(table)
    if as_json:
        print_json({"table": str(out), "rows": rows, "seen": opened.seen, "damaged": _list_damage(opened.damaged)})
        return
    click.echo(f"{out}: {format_count(rows, 'row')} from {format_count(opened.seen, 'record')}")
    _print_damage(opened.damaged)


@command.command(
    "query",
    examples=(
        'tilewright data query "SELECT status, count(*) FROM records GROUP BY status" sweep',
        'tilewright data query "SELECT kernel, min(us) FROM records GROUP BY kernel" records.parquet',
        "tilewright data query \"SELECT problem->>'m' AS m, tflops FROM records\" records.parquet --csv",
    ),
)
@click.argument("sql", metavar="SQL")
@_add_sources_argument
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values instead of a table.")
@add_json_option
def run_query_command(*, sql: str, sources: tuple[Path, ...], as_csv: bool, as_json: bool) -> None:
    """Query records with SQL; they are the view `records`.

    The query runs in DuckDB. A table is queried as it is; journals are exported first, for each query
    again. A problem is JSON: problem->>'m' is its field m. `SELECT * FROM records LIMIT 1` shows the
    columns.
    """
    from tilewright.bench.sources import run_query

    if as_csv and as_json:
        raise InvalidValueError("--csv and --json exclude each other: give one of them")
    with report_progress(as_json=as_json):
        answer = run_query(sql, *sources)
    if as_json:
        rows = [dict(zip(answer.columns, map(_to_json_value, row), strict=True)) for row in answer.rows]
        print_json({"columns": list(answer.columns), "rows": rows, "damaged": _list_damage(answer.damaged)})
        return
    if as_csv:
        _print_csv(answer.columns, answer.rows)
    else:
        _print_answer(answer.columns, answer.rows)
    _print_damage(answer.damaged)


@command.command(
    "merge",
    examples=("tilewright data merge node1 node2 --out all", "tilewright data merge sweep/ records.parquet --out all"),
)
@_add_sources_argument
@click.option("--out", type=OutputFolder(), required=True, help="The journal to write (folder).")
@add_json_option
def merge_command(*, sources: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Merge journals and tables into one journal with every key once."""
    from tilewright.bench.journal_merge import write_merged
    from tilewright.bench.sources import open_sources

    with report_progress(as_json=as_json):
        opened = open_sources(*sources)
        file = out / "merged.jsonl"
        write_merged(opened.selected, file)
    if as_json:
        print_json(
            {"journal": str(out), "records": len(opened), "seen": opened.seen, "damaged": _list_damage(opened.damaged)}
        )
        return
    click.echo(f"{file}: {format_count(len(opened), 'record')} of {format_count(opened.seen, 'intact one')}")
    _print_damage(opened.damaged)


@command.command(
    "import",
    examples=(
        "tilewright data import conv_gfx950 conv_fwd_bf16_gfx950.csv --out conv",
        "tilewright data import conv_benchmark bwd_data.csv --gpu gfx950 --out conv",
        "tilewright data import tile_engine build/results --gpu gfx942 --out gemm",
        "tilewright data import tile_engine preshuffle.json --gpu gfx942 --permute-n --skip --out gemm",
    ),
)
@click.argument("name", metavar="FORMAT")
@click.argument("file", type=PATH)
@click.option("--out", type=OutputFolder(), required=True, help="The journal to write to (folder).")
@make_gpu_option("arch", "The GPU of the measurements, if the file does not contain it.")
@click.option("--elementwise", metavar="NAME", help="The operation that kernels apply to their D tensors.")
@click.option("--permute-n/--no-permute-n", default=None, help="Whether preshuffled kernels permute N.")
@click.option("--skip", is_flag=True, help="Skip rows of unknown kernels instead of rejecting the file.")
@add_json_option
def import_command(*, name: str, file: Path, out: Path, skip: bool, as_json: bool, **options: Any) -> None:
    """Import measurements of other tools into a journal.

    FORMAT is conv_benchmark (CSV of AMD's convolution benchmark, all directions), conv_gfx950 (CK
    Tile's public convolution sweep) or tile_engine (benchmarks of CK's tile_engine as JSON or CSV,
    or a folder of JSON files).
    """
    from tilewright.bench.journal import Journal
    from tilewright.bench.sources import read_foreign

    with report_progress(as_json=as_json):
        found = read_foreign(name, file, **options)
        if found.refused and not skip:
            raise FileFormatError(file, found.refused)
        with Journal(out, f"import-{name}", fsync="batch") as journal:
            for record in found.records:
                journal.append(record)
    if as_json:
        refused = [str(each) for each in found.refused]
        print_json({"journal": str(out), "records": len(found.records), "refused": refused, "notes": list(found.notes)})
        return
    click.echo(f"{journal.file}: {format_count(len(found.records), 'record')}")
    for text in (*found.notes, *(f"left out: {each}" for each in found.refused)):
        print_remark(text)


def _list_damage(damaged: Sequence[DamagedLine]) -> list[dict[str, Any]]:
    return [{"file": str(each.file), "line": each.line, "why": each.why} for each in damaged]


def _print_damage(damaged: Sequence[DamagedLine]) -> None:
    for each in damaged[:MOST_DAMAGED_LINES]:
        click.echo(f"damaged: {each}", err=True)
    if len(damaged) > MOST_DAMAGED_LINES:
        click.echo(f"damaged: {format_count(len(damaged) - MOST_DAMAGED_LINES, 'more line')}", err=True)


def _to_json_value(value: Any) -> Any:
    """A DuckDB value as a JSON value. NaN and infinities are an error, not a null."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValueError(
            f"the result holds {value}, which is not a JSON number: filter it in the query, or use --csv"
        )
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): _to_json_value(each) for key, each in value.items()}
    return [_to_json_value(each) for each in value] if isinstance(value, list | tuple) else value


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_answer(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    numbers = [
        name
        for i, name in enumerate(columns)
        if rows and all(isinstance(row[i], int | float | decimal.Decimal | None) for row in rows)
    ]
    print_table(columns, [[_format_value(value) for value in row] for row in rows[:SHOWN]], numbers=numbers)
    if len(rows) > SHOWN:
        print_remark(f"… and {format_count(len(rows) - SHOWN, 'more row')}: use LIMIT, --csv or --json")


def _print_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    click.echo(text.getvalue(), nl=False)
