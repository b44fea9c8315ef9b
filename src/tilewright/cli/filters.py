"""Filters: options that keep only some kernels of a set, also those that only the op of the command knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import choose
from tilewright.cli.command import Command, Several

if TYPE_CHECKING:
    from tilewright.ops.op import Op

F = TypeVar("F", bound=Callable[..., Any])

# Options that every such command has → the field, shorthand or filter of an op that they stand for.
NAMES = {"datatype": "dtype", "layout": "layout", "variants": "variant"}


def filter_options(command: F) -> F:
    """--datatype, --layout and --variants."""
    for decorate in reversed(
        (
            click.option("--datatype", cls=Several, spaced=True, metavar="D…", help="Only these types: fp16 bf16 …"),
            click.option("--layout", cls=Several, spaced=True, metavar="L…", help="Only these layouts: rcr rrr …"),
            click.option(
                "--variants",
                "--variant",
                "variants",
                cls=Several,
                spaced=True,
                metavar="V…",
                help="Only these variants.",
            ),
        )
    ):
        command = decorate(command)
    return command


class FilterCommand(Command):
    """A command with filters, which it gets as `filters`: name → values.

    Options that the command does not have are filters too. Which names there are is up to the op, which is not known
    while options are read: `named_filters` checks them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for p in self.get_params(ctx) for name in (*p.opts, *p.secondary_opts)}
        own, others = split_options(args, known)
        for option, values in others.items():
            if not values:
                raise click.BadOptionUsage(option, f"Option '{option}' requires a value.", ctx)
        try:
            rest = super().parse_args(ctx, own)
        except click.MissingParameter as error:
            if not others or error.message:
                raise
            if isinstance(error.param, click.Option):
                hint = f"Was it meant by {', '.join(others)}?"
                raise click.MissingParameter(hint, error.ctx, error.param) from error
            # One of the values may have been meant as the argument.
            hint = f"It comes before {', '.join(others)}."
            raise click.MissingParameter(hint, error.ctx, error.param) from error
        filters = {name: ctx.params.pop(option) for option, name in NAMES.items()}
        ctx.params["filters"] = {**filters, **others}
        return rest


def split_options(args: Sequence[str], known: Collection[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The arguments without the long options that are not known, and these with their values: `--x a b`, `--x=a,b`."""
    own: list[str] = []
    others: dict[str, tuple[str, ...]] = {}
    flag: str | None = None
    for i, arg in enumerate(args):
        if arg == "--":
            own += args[i:]
            break
        if arg.startswith("-"):
            name, _, value = arg.partition("=")
            flag = name if arg.startswith("--") and name not in known else None
            if flag is not None:
                others[flag] = others.get(flag, ()) + _parts(value)
        elif flag is not None:
            others[flag] += _parts(arg)
        if flag is None:
            own.append(arg)
    return own, others


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def named_filters(op: Op, command: click.Command, filters: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Filters by the names that the op has for them; `UnknownValueError` lists all options there are for it."""
    by_option = {f"--{name.replace('_', '-')}": name for name in (*op.filters, *op.shorthands, *op.field_names)}
    known = [*(name for p in command.params for name in p.opts if name.startswith("--")), *by_option]
    named: dict[str, tuple[str, ...]] = {}
    for given, values in filters.items():
        name = given
        if given.startswith("--"):
            name = by_option[choose(f"option for {op.name}", given, dict.fromkeys(known))]
        named[name] = named.get(name, ()) + values
    return named
