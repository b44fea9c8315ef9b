"""`tilewright emulate`: run a HIP program on the emulated device."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click

from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import FILE, Command, make_mode_option
from tilewright.cli.gpu_option import PROJECT, make_gpu_option
from tilewright.cli.output import add_json_option, format_count, print_json
from tilewright.cli.output_paths import OutputFile
from tilewright.cli.verbosity import print_remark


@click.command(
    cls=Command,
    # All words after the program are its own.
    context_settings={"allow_interspersed_args": False},
    examples=(
        "tilewright emulate ./vector_add 1000",
        "tilewright emulate --gpu gfx942 --mode strict --report report.json ./tests",
        "tilewright emulate --gpu gfx90a ctest",
        "tilewright emulate --check races,uninitialized --findings findings.sarif ./tests",
        "tilewright emulate --gpu gfx942 --environment",
    ),
)
@make_gpu_option("gpu", "Emulate this GPU. Default: the one that the program has code for.", default=PROJECT)
@make_mode_option("In strict mode missing barriers and waits become visible, and it takes longer.")
@click.option(
    "--report",
    type=OutputFile(".json", ".jsonl"),
    metavar="FILE",
    help="Write launches, counters, errors and memory that was not freed: a line of JSON per process.",
)
@click.option(
    "--check",
    "check_words",
    multiple=True,
    metavar="WORDS",
    help="Check the kernels: uninitialized, races, barriers, progress, leaks, or all.",
)
@click.option(
    "--suppress",
    type=FILE,
    metavar="FILE",
    help="Do not report the findings that this file lists.",
)
@click.option(
    "--findings",
    type=OutputFile(".txt", ".json", ".sarif", ".html"),
    metavar="FILE",
    help="Write what the checks found, and faults: .txt, .json, .sarif or .html.",
)
@click.option("--environment", is_flag=True, help="Print the variables to set, and start no program.")
@add_json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGUMENT]...")
def command(
    *,
    gpu: str | None,
    mode: str,
    report: Path | None,
    check_words: tuple[str, ...],
    suppress: Path | None,
    findings: Path | None,
    environment: bool,
    as_json: bool,
    words: tuple[str, ...],
) -> None:
    """Run a HIP program on the emulated device.

    PROGRAM is an executable that uses HIP, or loads a library that does, such as a pack. Its output
    and its exit code are its own. It may be a script or ctest: all programs that it starts are
    emulated. Write -- before PROGRAM if its name begins with a dash.

    An error of a kernel is printed to stderr, and HIP calls return the status that they return on a
    GPU. HIP functions that are not implemented return hipErrorNotSupported, and are named on stderr.

    With --check, findings are printed to stderr, the kernels run to their end, and the exit code is 1
    if the program's is 0 and something was found.

    The first run builds the emulated device's library, which takes some seconds.
    """
    if as_json and not environment:
        raise InvalidValueError("--json needs --environment: the output is otherwise that of the program")
    if environment and words:
        raise click.UsageError("--environment takes no program.")
    if not environment and not words:
        raise click.UsageError("Name a program, or use --environment.")
    if environment and findings is not None:
        raise click.UsageError("--findings needs a program: use --report with --environment.")
    from tilewright.emulator.hip_shim.program import find_kept_tools, make_program_environment
    from tilewright.emulator.launch import Mode
    from tilewright.emulator.sanitizer.checks import CHECKS, parse_checks

    checks = parse_checks(check_words, CHECKS)
    program = None if environment else find_program(words[0])
    chosen = gpu or choose_gpu(program)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        stays = program is not None and (checks or findings is not None)
        lines = Path(folder, "report.json") if stays and report is None else report
        tools = find_kept_tools()
        with nullcontext() if tools is not None else _show_progress(as_json):
            variables = make_program_environment(
                chosen, Mode(mode), lines, checks=checks, suppressions=suppress, tools=tools
            )
        if lines is not None:
            lines.write_bytes(b"")  # the processes append to it
        if program is None:
            _print(variables, as_json)
            return
        sys.stdout.flush()
        sys.stderr.flush()
        knobs.set_variables(variables)
        if stays and lines is not None:
            raise click.exceptions.Exit(_run_checked(program, words, lines, findings))
    os.execv(program, list(words))


def _show_progress(as_json: bool) -> AbstractContextManager[None]:
    """Show the progress of building the emulated device's library, inside a `with` block."""
    from tilewright.cli.progress import report_progress  # of the first run only, and it takes long to import

    return report_progress(as_json=as_json)


def _run_checked(program: Path, words: tuple[str, ...], lines: Path, findings: Path | None) -> int:
    """Run a program, write its findings, and return the exit code."""
    from tilewright.emulator.sanitizer.program_findings import read_findings
    from tilewright.emulator.sanitizer.reports import write_report

    code = run_program(program, words)
    found, suppressed = read_findings(lines)
    if findings is not None:
        write_report(findings, found)
    hidden = f", {suppressed} suppressed" if suppressed else ""
    print_remark(f"tilewright: {format_count(len(found), 'finding')}{hidden}")
    return code or int(bool(found))


def run_program(program: Path, words: Sequence[str], *, to_stderr: bool = False) -> int:
    """Run a program to its end, and return the exit code. With `to_stderr`, its output goes there."""
    sys.stdout.flush()
    sys.stderr.flush()
    output = sys.stderr if to_stderr else None
    with _leave_interrupts():
        code = subprocess.run(words, executable=program.absolute(), stdout=output, check=False).returncode
    return code if code >= 0 else 128 - code  # as shells do for a program that a signal ended


@contextmanager
def _leave_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the program, which gets it, too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def find_program(name: str) -> Path:
    """Return the path of a program, which may be on PATH."""
    found = shutil.which(name)
    if found is None:
        raise InvalidValueError(f"{name} is not a program: no such executable file, neither here nor on PATH")
    return Path(found)


def choose_gpu(program: Path | None) -> str:
    """Return the one GPU that the program has code for."""
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
