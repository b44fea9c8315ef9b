"""`tilewright trace`: profile the kernels of a HIP program on the emulated device."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base import knobs
from tilewright.cli.command import Command, make_mode_option
from tilewright.cli.emulate import choose_gpu, find_program, run_program
from tilewright.cli.gpu_option import PROJECT, make_gpu_option
from tilewright.cli.output import add_json_option, format_count, print_json
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.emulator.timing.estimate import TimingEstimate
    from tilewright.emulator.trace import EstimatedTrace

MOST_PRINTED = 5  # hot lines of a kernel


@click.command(
    cls=Command,
    # All words after the program are its own.
    context_settings={"allow_interspersed_args": False},
    examples=(
        "tilewright trace ./vector_add 1000",
        "tilewright trace --gpu gfx942 --out trace ./tests",
    ),
)
@make_gpu_option("gpu", "Emulate this GPU. Default: the one that the program has code for.", default=PROJECT)
@make_mode_option("The emulator's mode.")
@click.option(
    "--out", type=OutputFolder(), metavar="DIR", default=Path("trace"), show_default=True, help="Write into DIR."
)
@add_json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGUMENT]...")
@click.pass_context
def command(
    ctx: click.Context, *, gpu: str | None, mode: str, out: Path, as_json: bool, words: tuple[str, ...]
) -> None:
    """Profile the kernels of a HIP program.

    PROGRAM runs on the emulated device, as with `tilewright emulate`, and its exit code is the exit
    code of this command. DIR gets a page with the hot source lines of each kernel (index.html), all
    counts (profile.json) and a timeline for Chrome or Perfetto (trace.json).

    A trace has counts, not times: executed instructions, active lanes, bytes, cache lines and bank
    conflicts of each instruction. Compile with -gline-tables-only to see source lines.

    Clocks and stalls by source line are estimates: they come from a model of the GPU, and nothing in
    them was measured. DIR also gets the estimated timeline of waves (waves.json).

    With --json, the output of PROGRAM goes to stderr.
    """
    from tilewright.emulator.hip_shim.program import make_program_environment
    from tilewright.emulator.launch import Mode
    from tilewright.emulator.trace import PAGE, estimate_trace, read_traces, write_trace

    program = find_program(words[0])
    chosen = gpu or choose_gpu(program)
    with tempfile.TemporaryDirectory(prefix="tilewright-trace-") as folder:
        profiles = Path(folder, "profiles.jsonl")
        profiles.touch()
        with report_progress(as_json=as_json):
            variables = make_program_environment(chosen, Mode(mode), None, profiles)
        knobs.set_variables(variables)
        code = run_program(program, words, to_stderr=as_json)
        traces = [estimate_trace(trace) for trace in read_traces(profiles)]
    write_trace(out, traces)
    if as_json:
        print_json({"exit_code": code, "page": str(out / PAGE), "programs": [_summarize(trace) for trace in traces]})
    else:
        _print(traces, out / PAGE)
    ctx.exit(code)


def _summarize(estimated: EstimatedTrace) -> dict[str, Any]:
    from tilewright.emulator.profile import sum_lines

    trace = estimated.trace
    return {
        "program": list(trace.program),
        "gpu": trace.arch,
        "mode": trace.mode,
        "launches": len(trace.launches),
        "kernels": [
            {
                "kernel": profile.kernel,
                "kernel_name": profile.full_name,
                "launches": profile.launches,
                "executed": profile.executed,
                "classes": profile.count_classes(),
                "lines": [
                    {"line": line.line, "active_lanes": line.active_lanes, **line.counts.to_json()}
                    for line in sum_lines(profile)[:MOST_PRINTED]
                ],
                "estimate": _shorten(estimated.estimates[profile.kernel].to_json()),
            }
            for profile in trace.kernels
        ],
    }


def _shorten(estimate: dict[str, Any]) -> dict[str, Any]:
    """Keep the lines with the most estimated clocks."""
    return {**estimate, "lines": estimate["lines"][:MOST_PRINTED]}


def _print(traces: Sequence[EstimatedTrace], page: Path) -> None:
    """Print the hot lines and the estimates to stderr: stdout is the program's."""
    from tilewright.emulator.profile import sum_lines

    for trace in traces:
        for profile in sorted(trace.trace.kernels, key=lambda each: -each.executed):
            times = format_count(profile.launches, "time")
            click.echo(f"{profile.short_name}: {profile.executed:,} instructions, launched {times}", err=True)
            for line in sum_lines(profile)[:MOST_PRINTED]:
                place = f"{line.line[0]}:{line.line[1]}" if line.line else "without a source line"
                share = 100 * line.counts.executed / max(profile.executed, 1)
                click.echo(f"  {share:5.1f} %  {place}", err=True)
            _print_estimate(trace.estimates[profile.kernel])
    if not traces:
        click.echo("The program launched no kernel on the emulated device.", err=True)
    click.echo(f"page       {page}", err=True)


def _print_estimate(estimate: TimingEstimate) -> None:
    from tilewright.emulator.timing.estimate import NOTE
    from tilewright.emulator.trace import list_shares

    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in list_shares(estimate))
    click.echo(f"  {estimate.block_clocks:,} clocks per work-group, {NOTE}: {shares}", err=True)
    for line in estimate.lines[:MOST_PRINTED]:
        place = f"{line.line[0]}:{line.line[1]}" if line.line else "without a source line"
        most = max(line.stalled, key=lambda reason: line.stalled[reason], default=None)
        waits = most is not None and line.stalled[most] > line.issued
        share = 100 * line.clocks / estimate.wave_clocks
        click.echo(f"  {share:5.1f} %  {place}, mostly {f'waiting for {most}' if waits else 'issuing'}", err=True)
