"""`-q` and `-v`: how much a command prints in addition to its results."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import click

from tilewright.base.errors import InvalidValueError

_KEY = "tilewright.verbosity"


class Verbosity(Enum):
    """Results and errors only; progress and notes, too; or also every step, as lines."""

    QUIET = "--quiet"
    NORMAL = ""
    VERBOSE = "--verbose"


def make_verbosity_options(taken: Sequence[str] = ()) -> list[click.Option]:
    """The options -q and -v, without those whose names are `taken`."""
    options = [
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=set_verbosity,
            help="Print results and errors only.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=set_verbosity,
            help="Print every step, and the commands of compilers.",
        ),
    ]
    return [option for option in options if not set(option.opts) & set(taken)]


def set_verbosity(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Keep the verbosity that an option sets. It is valid for the whole command line, wherever the option stands."""
    if value:
        wanted = Verbosity(param.opts[-1])
        if ctx.meta.setdefault(_KEY, wanted) is not wanted:
            raise InvalidValueError("-q and -v exclude each other: give one of them")
    return value


def get_verbosity() -> Verbosity:
    """The verbosity of the current command."""
    ctx = click.get_current_context(silent=True)
    found: Verbosity = Verbosity.NORMAL if ctx is None else ctx.meta.get(_KEY, Verbosity.NORMAL)
    return found


def print_remark(text: str) -> None:
    """Print a remark about the results to stderr, except with -q."""
    if get_verbosity() is not Verbosity.QUIET:
        click.echo(text, err=True)
