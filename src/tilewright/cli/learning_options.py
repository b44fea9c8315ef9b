"""Options, data sets and printed figures that the commands about learned models share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import Option
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.output import print_heading, print_table

if TYPE_CHECKING:
    from tilewright.learn.dataset import Dataset
    from tilewright.learn.evaluation import Evaluation
    from tilewright.learn.measurements import Measurements
    from tilewright.learn.training_config import TrainingConfig

F = TypeVar("F", bound=Callable[..., Any])


def add_table_options(command: F) -> F:
    """Add TABLE, --op and --gpu."""
    for decorate in reversed(
        (
            click.argument("table", type=click.Path(exists=True, path_type=Path)),
            click.option(
                "--op", "op_name", metavar="OP", help="Use rows of this op. Required if the table has several."
            ),
            make_gpu_option(
                "arch", "Use rows of this GPU, such as gfx942. Required if the table has several.", of_records=True
            ),
        )
    ):
        command = decorate(command)
    return command


def add_training_options(command: F) -> F:
    """Add --kind, --rounds, --seeds, --tune, --threads and --few."""
    for decorate in reversed(
        (
            click.option(
                "--kind",
                cls=Option,
                metavar="KIND",
                show_default="regressor",
                help="Train a regressor (of times) or a ranker (of the order).",
            ),
            click.option(
                "--rounds",
                cls=Option,
                type=click.IntRange(1),
                metavar="N",
                show_default="150",
                help="Maximum number of trees per seed.",
            ),
            click.option(
                "--seeds",
                cls=Option,
                type=click.IntRange(1),
                metavar="N",
                show_default="2",
                help="Train N models and average their predictions.",
            ),
            click.option(
                "--tune",
                "tries",
                type=click.IntRange(1),
                default=1,
                show_default=True,
                metavar="N",
                help="Compare N training configs by cross-validation and use the best.",
            ),
            click.option(
                "--threads",
                cls=Option,
                type=click.IntRange(1),
                metavar="N",
                show_default="1",
                help="Number of LightGBM threads.",
            ),
            click.option("--few", is_flag=True, help="Train even if there are too few problems."),
        )
    ):
        command = decorate(command)
    return command


def make_training_config(
    *, kind: str | None, rounds: int | None, seeds: int | None, threads: int | None
) -> TrainingConfig:
    """The default training config with the values of the command line."""
    from tilewright.learn.training_config import TrainingConfig

    numbers = None if seeds is None else tuple(range(seeds))
    given = {"kind": kind, "rounds": rounds, "seeds": numbers, "threads": threads}
    return TrainingConfig(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def read_dataset(path: Path, op_name: str | None, arch: str | None) -> Dataset:
    """Read the rows of a table that a command uses."""
    from tilewright.base.errors import choose
    from tilewright.learn.dataset import build_dataset
    from tilewright.learn.read_times import read_times

    table = read_times(path)
    op_name = _get_only_value(table, "op") if op_name is None else choose("op of the table", op_name, table.op.values)
    arch = _get_only_value(table, "arch") if arch is None else choose("arch of the table", arch, table.arch.values)
    return build_dataset(table, op_name, arch)


def _get_only_value(table: Measurements, column: str) -> str:
    values: tuple[str, ...] = getattr(table, column).values
    if len(values) == 1:
        return values[0]
    found = ", ".join(values) or "none"
    option = {"op": "--op", "arch": "--gpu"}[column]
    raise InvalidValueError(f"choose one with {option}: the table has rows of {len(values)} ({found})")


def print_evaluation(found: Evaluation) -> None:
    """Print the figures of each split, the evaluated method first, and whether the problems were new to it."""
    from tilewright.learn.evaluation import METHODS
    from tilewright.learn.report import COLUMNS, format_figures

    for judged in found.judged:
        print_heading(f"{judged.split.name}: {judged.split.doc}")
        rows = [(name, *format_figures(judged.figures[name])) for name in METHODS]
        print_table(("choice, %", *COLUMNS), rows, numbers=COLUMNS)
    click.echo(f"\n{found.seen}")
