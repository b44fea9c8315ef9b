"""The command `tilewright`: its sub-commands, and how failures are printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import click

from tilewright import __version__
from tilewright.base import knobs
from tilewright.base.errors import CompileError, TilewrightError
from tilewright.cli.command import CommandGroup
from tilewright.cli.defaults import describe_used_defaults
from tilewright.cli.output import COLUMNS
from tilewright.cli.verbosity import make_verbosity_options

FAILED = 2
INTERRUPTED = 130
LOG_LINES = 20

# Command → the module of this package that defines it as `command`, in the order of --help.
COMMANDS = {
    "doctor": "doctor",
    "arch": "arch",
    "check": "check",
    "space": "space",
    "sets": "sets",
    "generate": "generate",
    "build": "build",
    "registry": "registry",
    "cmake": "cmake",
    "wrap": "wrap",
    "inspect": "inspect",
    "problems": "problem_list",
    "select": "select",
    "portfolio": "portfolio",
    "coverage": "coverage",
    "verify": "verify",
    "acceptance": "acceptance",
    "emulate": "emulate",
    "trace": "trace",
    "bench": "bench",
    "sweep": "sweep",
    "tune": "tune",
    "train": "train",
    "evaluate": "evaluate",
    "compare": "compare",
    "report": "report",
    "data": "data",
    "rules": "rules",
    "new-op": "new_op",
    "cache": "cache",
    "index": "index",
    "toolchain": "toolchain",
    "knobs": "knobs",
}


# Advice in errors of the Python API, and its form for the command line.
_SHELL_TERMS = (
    (re.compile(r"pass pad=True"), "use --pad"),
    (re.compile(r"\bDevice\('([^']*)'\)"), r"--device \1"),
    (re.compile(r"pass device=…, use `with tilewright\.Device\(…\):`, or set"), "use --device DEVICE, or set"),
)


class RootGroup(CommandGroup):
    """The outermost group. Turns every error of a command into one message and an exit code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += make_verbosity_options()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error
        except (click.ClickException, TilewrightError) as error:
            error.add_note(describe_used_defaults(ctx))
            raise

    def main(self, *args: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        extra.setdefault("color", _get_color())
        run = super().main
        sys.exit(_run_to_exit_code(lambda: run(*args, **extra)))


def _run_to_exit_code(run: Callable[[], Any]) -> int:
    try:
        code = run()
    except click.ClickException as error:
        _print_error(error, error.format_message(), _make_help_hint(error))
        return error.exit_code
    except CompileError as error:
        _print_error(error, str(error), _cut_log(error.log))
        return FAILED
    except TilewrightError as error:
        _print_error(error, _use_shell_terms(str(error)))
        return FAILED
    except OSError as error:
        _print_error(error, f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _use_shell_terms(message: str) -> str:
    """Replace advice for Python programs with the same advice for the command line."""
    for python, shell in _SHELL_TERMS:
        message = python.sub(shell, message)
    return message


def _get_color() -> bool | None:
    """False if the user does not want colours (see no-color.org), else None: terminals have colours."""
    return False if knobs.read_foreign_variables(("NO_COLOR",)) else None


def _print_error(error: Exception, message: str, more: str = "") -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True, color=_get_color())
    for note in filter(None, getattr(error, "__notes__", ())):
        click.echo(f"       {note}", err=True)
    if more:
        click.echo(more, err=True)


def _make_help_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"       Run `{error.ctx.command_path} --help` for usage."
    return ""


def _cut_log(log: str) -> str:
    """The first lines of a compiler's log: the first error is the one that matters."""
    lines = log.rstrip().splitlines()
    left = len(lines) - LOG_LINES
    return "\n".join([*lines[:LOG_LINES], *([f"… and {left} more lines"] if left > 0 else [])])


@click.group(
    cls=RootGroup,
    modules=COMMANDS,
    context_settings={"max_content_width": COLUMNS},  # of all commands
    examples=(
        "tilewright doctor",
        "tilewright arch show gfx942",
        "tilewright space gemm --gpu gfx942 --set fp16_rcr_essential",
        "tilewright generate gemm --out kernels --gpu gfx942 --datatype fp16",
    ),
)
@click.version_option(__version__, "-V", "--version", prog_name="tilewright")
def root() -> None:
    """Make, check, build and inspect GPU kernels on AMD's CK Tile templates, with or without a GPU.

    Results go to stdout, progress and errors to stderr. -q and -v may also follow the command.

    Exit codes: 0 for success, 1 for a negative answer (illegal config, incomplete toolchain, bad
    file), 2 if the command failed.
    """
