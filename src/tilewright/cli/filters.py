"""Filters: options that keep only some kernels of a set, including those that only the command's op defines."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import UnknownValueError, choose
from tilewright.cli.command import FILE, Command, MultiValueOption, Option, list_main_names
from tilewright.cli.completion import complete_sets

if TYPE_CHECKING:
    from tilewright.ops.op import Op

F = TypeVar("F", bound=Callable[..., Any])

# The filters for which every such command has an option, with help and defaults. An op declares what they select by.
COMMON = ("datatype", "layout", "variants")
_CLOSE = 0.8  # similarity of a misspelt option: `--hlp` and `--help` have 0.91


def add_filter_options(command: F) -> F:
    """Add --datatype, --layout and --variants."""
    for decorate in reversed(
        (
            click.option(
                "--datatype",
                cls=MultiValueOption,
                default_key="dtype",
                late=True,
                spaced=True,
                metavar="D…",
                help="Keep only kernels of these data types, such as fp16 bf16.",
            ),
            click.option(
                "--layout",
                cls=MultiValueOption,
                default_key="layout",
                late=True,
                spaced=True,
                metavar="L…",
                help="Keep only kernels of these layouts, such as rcr rrr.",
            ),
            click.option(
                "--variants",
                "--variant",
                "variants",
                cls=MultiValueOption,
                spaced=True,
                metavar="V…",
                help="Keep only kernels of these variants, such as standard multi_d.",
            ),
        )
    ):
        command = decorate(command)
    return command


def add_set_options(verb: str) -> Callable[[F], F]:
    """Add --preselected, --kernel-set and --tile-engine. Their help begins with `verb`: "Use", "Choose from"."""

    def decorate(command: F) -> F:
        command = click.option(
            "--tile-engine",
            type=FILE,
            metavar="FILE",
            help=f"{verb} the kernels of a configuration file of CK's tile_engine.",
        )(command)
        command = click.option(
            "--kernel-set", type=FILE, metavar="FILE", help=f"{verb} the kernels of a kernel-set file (.toml, .json)."
        )(command)
        return click.option(
            "--preselected",
            cls=Option,
            aliases=("--set",),
            metavar="NAME",
            shell_complete=complete_sets,
            help=f"{verb} a preselected set or built-in space; `tilewright sets` lists them.",
        )(command)

    return decorate


class FilterCommand(Command):
    """A command with filters, which are passed to it as `filters`: option → values.

    Options that the command does not define are filters too. The filters depend on the op, which is not known while
    options are parsed: `resolve_filters` checks them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for p in self.get_params(ctx) for name in (*p.opts, *p.secondary_opts)}
        own, others = split_options(args, known)
        for option, values in others.items():
            if not values:
                raise click.BadOptionUsage(option, _explain_missing_value(option, known), ctx)
        try:
            rest = super().parse_args(ctx, own)
        except click.MissingParameter as error:
            if not others or error.message:
                raise
            if isinstance(error.param, click.Option):
                hint = f"Did you mean it by {', '.join(others)}?"
                raise click.MissingParameter(hint, error.ctx, error.param) from error
            # The argument may have been taken for one of the values.
            hint = f"It comes before {', '.join(others)}."
            raise click.MissingParameter(hint, error.ctx, error.param) from error
        common = {f"--{word}": ctx.params.pop(word) for word in COMMON}
        ctx.params["filters"] = {**{option: values for option, values in common.items() if values}, **others}
        return rest


def _explain_missing_value(option: str, known: Iterable[str]) -> str:
    """Explain an unknown option without a value: a filter of the op, or a misspelt option of the command."""
    close = difflib.get_close_matches(option, sorted(known), n=1, cutoff=_CLOSE)
    if not close:
        return f"Option '{option}' requires a value."
    return f"The command has no option '{option}', and as a filter it requires a value. Did you mean '{close[0]}'?"


def split_options(args: Sequence[str], known: Collection[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The arguments without unknown long options, and the unknown options with their values: `--x a b`, `--x=a,b`."""
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
                others[flag] = others.get(flag, ()) + _split_values(value)
        elif flag is not None:
            others[flag] += _split_values(arg)
        if flag is None:
            own.append(arg)
    return own, others


def _split_values(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def resolve_filters(
    op: Op, command: click.Command, filters: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The values of each field, shorthand or property of the op that the given options select by.

    An option that the op does not have is an `UnknownValueError`, which lists those that it has.
    """
    own = {name: name for name in (*op.shorthands, *op.field_names)}
    targets = {_format_option(word): target for word, target in {**own, **op.filters}.items()}
    lacking = {f"--{word}" for word in COMMON} - targets.keys()
    of_command = [name for p in command.params for name in list_main_names(p) if name.startswith("--")]
    known = dict.fromkeys(option for option in (*of_command, *targets) if option not in lacking)
    selected: dict[str, tuple[str, ...]] = {}
    for option, values in filters.items():
        if option in lacking:
            raise UnknownValueError(f"filter of {op.name}", option, targets)
        target = targets[choose(f"option for {op.name}", option, known)]
        selected[target] = selected.get(target, ()) + values
    return selected


def _format_option(word: str) -> str:
    return f"--{word.replace('_', '-')}"
