"""What the commands about learned models share: options, the data set of a table, and how figures are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.output import heading_line, print_table

if TYPE_CHECKING:
    from tilewright.learn.dataset import Dataset
    from tilewright.learn.evaluation import Evaluation
    from tilewright.learn.measurements import Measurements
    from tilewright.learn.recipe import Recipe

F = TypeVar("F", bound=Callable[..., Any])


def table_options(command: F) -> F:
    """TABLE, --op and --arch."""
    for decorate in reversed(
        (
            click.argument("table", type=click.Path(exists=True, path_type=Path)),
            click.option("--op", "op_name", metavar="OP", help="Rows of this op; needed if the table has several."),
            click.option("--arch", metavar="ARCH", help="Rows of this GPU; needed if the table has several."),
        )
    ):
        command = decorate(command)
    return command


def recipe_options(command: F) -> F:
    """--kind, --rounds, --seeds, --tune, --threads and --few."""
    for decorate in reversed(
        (
            click.option("--kind", metavar="KIND", help="regressor (of times, the default) or ranker (of the order)."),
            click.option("--rounds", type=click.IntRange(1), metavar="N", help="Most trees of a seed."),
            click.option("--seeds", type=click.IntRange(1), metavar="N", help="Models whose mean is taken."),
            click.option(
                "--tune",
                "tries",
                type=click.IntRange(1),
                default=1,
                metavar="N",
                help="Compare so many recipes inside the training data, and take the best.",
            ),
            click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of LightGBM, 1 if not said."),
            click.option("--few", is_flag=True, help="Learn from fewer problems than are worth it."),
        )
    ):
        command = decorate(command)
    return command


def recipe_of(*, kind: str | None, rounds: int | None, seeds: int | None, threads: int | None) -> Recipe:
    """The default recipe with what the command line says otherwise."""
    from tilewright.learn.recipe import Recipe

    said = {"kind": kind, "rounds": rounds, "seeds": None if seeds is None else tuple(range(seeds)), "threads": threads}
    return Recipe(**{name: value for name, value in said.items() if value is not None})  # type: ignore[arg-type]


def dataset_of(path: Path, op_name: str | None, arch: str | None) -> Dataset:
    """The rows of a table that a command is about."""
    from tilewright.base.errors import choose
    from tilewright.learn.dataset import dataset
    from tilewright.learn.read_times import read_times

    table = read_times(path)
    op_name = _only(table, "op") if op_name is None else choose("op of the table", op_name, table.op.values)
    arch = _only(table, "arch") if arch is None else choose("arch of the table", arch, table.arch.values)
    return dataset(table, op_name, arch)


def _only(table: Measurements, column: str) -> str:
    values: tuple[str, ...] = getattr(table, column).values
    if len(values) == 1:
        return values[0]
    found = ", ".join(values) or "none"
    raise InvalidValueError(f"say which with --{column}: the table has rows of {len(values)} ({found})")


def print_evaluation(found: Evaluation) -> None:
    """The figures of each split, the judged method first."""
    from tilewright.learn.evaluation import METHODS
    from tilewright.learn.report import COLUMNS, figures_text

    for judged in found.judged:
        heading_line(f"{judged.split.name}: {judged.split.doc}")
        rows = [(name, *figures_text(judged.figures[name])) for name in METHODS]
        print_table(("choice, %", *COLUMNS), rows, numbers=COLUMNS)
