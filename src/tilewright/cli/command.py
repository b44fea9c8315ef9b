"""Commands with examples in their help, groups that import a command when it is used, and options
with aliases, printed defaults and several values."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from tilewright.base import knobs
from tilewright.base.errors import UnknownValueError
from tilewright.cli.completion import complete_devices
from tilewright.cli.defaults import describe_default, use_default
from tilewright.cli.verbosity import make_verbosity_options

if TYPE_CHECKING:
    from click.types import OptionHelpExtra


F = TypeVar("F", bound=Callable[..., Any])

# The printed default of --jobs.
JOBS = "TILEWRIGHT_JOBS, or one per core"
# A file that a command reads.
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Option(click.Option):
    """An option with `aliases`: names that work like the others, but are not in the help.

    The library may set the default: a text in `show_default` is printed as it is. With `default_key` the default comes
    from the project's file, if it has that key. A `late` default is only shown here: the command uses it, since
    whether it applies depends on other arguments.
    """

    def __init__(
        self,
        param_decls: Sequence[str] | None = None,
        *,
        aliases: Sequence[str] = (),
        default_key: str | None = None,
        late: bool = False,
        **attrs: Any,
    ) -> None:
        super().__init__([*(param_decls or ()), *aliases], **attrs)
        self.aliases = tuple(aliases)
        self.default_key = default_key
        self.late = late

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        if source is not ParameterSource.DEFAULT or self.default_key is None or self.late or ctx.resilient_parsing:
            return value, source
        found = use_default(ctx, self.default_key)
        if found is None:
            return value, source
        return (str(found),) if self.multiple else found, ParameterSource.DEFAULT_MAP

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, list_main_names(self)
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names

    def get_error_hint(self, ctx: click.Context | None) -> str:  # noqa: ARG002  (click's signature)
        return " / ".join(f"'{name}'" for name in list_main_names(self))

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default  # click would put it in brackets
        from_file = None if self.default_key is None else describe_default(ctx, self.default_key)
        if from_file is not None:
            extra["default"] = from_file
            extra.pop("required", None)
        return extra


def make_format_option(text: str = "Format of the file of --problems.") -> Callable[[F], F]:
    """The option --format of a file of problems."""
    return click.option("--format", "file_format", cls=Option, metavar="NAME", show_default="the suffix", help=text)


def make_mode_option(text: str) -> Callable[[F], F]:
    """The option --mode of programs on the emulated device."""
    return click.option("--mode", type=click.Choice(knobs.EMULATOR_MODES), default="fast", show_default=True, help=text)


def make_jobs_option(text: str) -> Callable[[F], F]:
    """The option --jobs."""
    return click.option(
        "--jobs", cls=Option, default_key="jobs", type=click.IntRange(1), metavar="N", show_default=JOBS, help=text
    )


def make_device_option(parameter: str, text: str, *, multiple: bool = False, default: bool = True) -> Callable[[F], F]:
    """The option --device. Without a `default` the command does something else if no device is given."""
    return click.option(
        "--device",
        parameter,
        cls=Option,
        default_key="device" if default else None,
        multiple=multiple,
        metavar="DEVICE",
        shell_complete=complete_devices,
        show_default="TILEWRIGHT_DEVICE" if default else None,
        help=text,
    )


class MultiValueOption(Option):
    """An option that takes several values: `--x a,b` and `--x a --x b` are the same, and `--x a b`
    too if it is `spaced`."""

    def __init__(self, *args: Any, spaced: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "multiple": True})
        self.spaced = spaced

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        processed = super().process_value(ctx, value)
        return tuple(part for text in processed or () for part in str(text).split(",") if part)


class _ShortHelp(click.Command):
    """`-h` is `--help`. click would take the names from a context, and keep those of the first context it sees."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return ["-h", "--help"]


class Command(_ShortHelp):
    """A command with -q and -v, whose help ends with examples. With --problem, it names the fields of problems."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params += make_verbosity_options([name for p in self.params for name in p.opts])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spaced = [p for p in self.params if isinstance(p, MultiValueOption) and p.spaced]
        names = {name for p in spaced for name in p.opts}
        try:
            return super().parse_args(ctx, repeat_flags(args, names))
        except click.MissingParameter as error:
            if isinstance(error.param, click.Option) or not names.intersection(args):
                raise
            # The argument may have been taken for one of the values.
            hint = f"It comes before {', '.join(sorted(p.opts[0] for p in spaced))}."
            raise click.MissingParameter(hint, error.ctx, error.param) from error

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002  (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        if any("--problem" in parameter.opts for parameter in self.params):
            write_problem_fields(formatter)
        write_examples(formatter, self.examples)


class CommandGroup(_ShortHelp, click.Group):
    """A group of commands. `modules` maps commands to modules that are imported when they are used."""

    command_class = Command

    def __init__(
        self,
        *args: Any,
        modules: Mapping[str, str] | None = None,
        examples: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **{**kwargs, "no_args_is_help": False})
        self.modules = dict(modules or {})
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return [*self.modules, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"tilewright.cli.{self.modules[cmd_name]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise UnknownValueError("command", args[0], known)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002  (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        write_examples(formatter, self.examples)


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether a parameter is on the command line, and not a default."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def list_main_names(param: click.Parameter) -> list[str]:
    """The names of an option or argument without aliases."""
    aliases = param.aliases if isinstance(param, Option) else ()
    return [name for name in param.opts if name not in aliases]


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the examples as they would be typed, without wrapping."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(" " * formatter.current_indent + example + "\n")


def write_problem_fields(formatter: click.HelpFormatter) -> None:
    """Write the names of the fields that problems of each op have."""
    from tilewright.ops import OPS
    from tilewright.ops.problem_field import list_declared_fields

    with formatter.section("Problem fields (`tilewright problems OP` describes them)"):
        formatter.write_dl([(op.name, ", ".join(list_declared_fields(op.problem_type))) for op in OPS])


def repeat_flags(args: Sequence[str], names: Collection[str]) -> list[str]:
    """Turn `--x a b` into `--x a --x b` for the options in `names`; all else is unchanged."""
    result: list[str] = []
    flag: str | None = None
    has_value = False
    for arg in args:
        if arg.startswith("-"):
            flag, has_value = (arg if arg in names else None), False
        elif flag is not None:
            if has_value:
                result.append(flag)
            has_value = True
        result.append(arg)
    return result
