"""`tilewright emulate`: run a HIP program on the emulated device."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import Command
from tilewright.cli.gpu_option import PROJECT, make_gpu_option
from tilewright.cli.output import add_json_option, print_json
from tilewright.cli.output_paths import OutputFile
from tilewright.cli.progress import report_progress

MODES = ("fast", "strict")


@click.command(
    cls=Command,
    # All words after the program are its own.
    context_settings={"allow_interspersed_args": False},
    examples=(
        "tilewright emulate ./vector_add 1000",
        "tilewright emulate --gpu gfx942 --mode strict --report report.json ./tests",
        "tilewright emulate --gpu gfx90a ctest",
        "tilewright emulate --gpu gfx942 --environment",
    ),
)
@make_gpu_option("gpu", "Emulate this GPU. Default: the one that the program has code for.", default=PROJECT)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="fast",
    show_default=True,
    help="In strict mode missing barriers and waits become visible, and it takes longer.",
)
@click.option(
    "--report",
    type=OutputFile(".json", ".jsonl"),
    metavar="FILE",
    help="Write launches, counters, errors and memory that was not freed: a line of JSON per process.",
)
@click.option("--environment", is_flag=True, help="Print the variables to set, and start no program.")
@add_json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGUMENT]...")
def command(
    *, gpu: str | None, mode: str, report: Path | None, environment: bool, as_json: bool, words: tuple[str, ...]
) -> None:
    """Run a HIP program on the emulated device.

    PROGRAM is an executable that uses HIP, or loads a library that does, such as a pack. Its output
    and its exit code are its own. It may be a script or ctest: all programs that it starts are
    emulated. Write -- before PROGRAM if its name begins with a dash.

    An error of a kernel is printed to stderr, and HIP calls return the status that they return on a
    GPU. HIP functions that are not implemented return hipErrorNotSupported, and are named on stderr.

    The first run builds the emulated device's library, which takes some seconds.
    """
    if as_json and not environment:
        raise InvalidValueError("--json needs --environment: the output is otherwise that of the program")
    if environment and words:
        raise click.UsageError("--environment takes no program.")
    if not environment and not words:
        raise click.UsageError("Name a program, or use --environment.")
    from tilewright.emulator.hip_shim.program import make_program_environment
    from tilewright.emulator.launch import Mode

    program = None if environment else _find_program(words[0])
    chosen = gpu or _choose_gpu(program)
    with report_progress(as_json=as_json):
        variables = make_program_environment(chosen, Mode(mode), report)
    if report is not None:
        report.write_bytes(b"")  # the processes append to it
    if program is None:
        _print(variables, as_json)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    knobs.set_variables(variables)
    os.execv(program, list(words))


def _find_program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise InvalidValueError(f"{name} is not a program: no such executable file, neither here nor on PATH")
    return Path(found)


def _choose_gpu(program: Path | None) -> str:
    """The one GPU that the program has code for."""
    from tilewright.emulator.hardware import EMULATED
    from tilewright.emulator.hip_shim.program import find_program_gpus

    known = f"Emulated are {', '.join(EMULATED)}."
    if program is None:
        raise InvalidValueError(f"--environment needs --gpu. {known}")
    found = find_program_gpus(program)
    fitting = [name for name in found if name in EMULATED]
    if len(fitting) == 1:
        return fitting[0]
    has = f"has code for {', '.join(found)}" if found else "names no GPU: its code is in other files, or compressed"
    raise InvalidValueError(f"--gpu is needed: {program} {has}. {known}")


def _print(variables: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        print_json(dict(variables))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
