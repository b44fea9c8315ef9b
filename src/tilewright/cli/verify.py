"""`tilewright verify`: whether kernels compute correct results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.cli.command import FILE, Command, Option, make_device_option, make_format_option, make_jobs_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.named_kernels import find_named_kernels, resolve_subjects
from tilewright.cli.output import (
    add_json_option,
    format_count,
    mark_bad,
    mark_good,
    print_heading,
    print_json,
    print_table,
)
from tilewright.cli.problems import (
    AssignedProblems,
    assign_problems,
    assign_texts,
    get_fixed_fields,
    read_listed_problems,
    read_problem,
)
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.dispatch.verify import Check
    from tilewright.emulator.launch import Counters, Mode
    from tilewright.ops.kernel import Kernel
    from tilewright.registry.registry import Registry
    from tilewright.runtime.device import Device

NUMBERS = ("ulps", "max abs", "max rel", "of limit", "instr.", "MFLOP", "KB read", "written", "lines", "conflicts")


@dataclass(frozen=True)
class VerifyRequest:
    """The problems to compute: given as texts, in a file, or as a number of trials."""

    texts: tuple[str, ...]
    file: Path | None
    file_format: str | None
    trials: int | None


@dataclass(frozen=True)
class VerifyOptions:
    """The device, the settings and the output format."""

    device: Device
    mode: Mode | None
    seed: int
    jobs: int | None
    as_json: bool


@click.command(
    cls=Command,
    examples=(
        "tilewright verify fp16_rcr_essential --device emulated:gfx942 --limit 2",
        "tilewright verify gemm-gfx942-standard-…-9a6900b412ca --device emulated:gfx942 \\",
        "    --problem m=200,n=256,k=96 --mode fast",
        "tilewright verify gemm --device emulated:gfx942 -s variant=standard -s dtype=fp16 -s layout=rcr \\",
        "    -s block=64x64x32 -s waves=2x2x1 -s mma=32x32x8 -s 'pipeline=mem,compv3' \\",
        "    -s scheduler=intrawave -s epilogue=cshuffle",
        "tilewright verify mine.toml --device emulated:gfx942 --together --problems attention.json",
    ),
)
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
@make_device_option("device_name", "Run on gpu:0, emulated:gfx942, ….")
@make_setting_option("VALUES", "Set the values of a field, for an op or to change a set. May be repeated.")
@click.option(
    "--mode",
    cls=Option,
    type=click.Choice(["strict", "fast"]),
    show_default="strict",
    help="Emulator mode (emulated devices only); strict finds missing barriers and waits.",
)
@click.option(
    "--check",
    "check_words",
    multiple=True,
    metavar="WORDS",
    help="Also check (emulated devices only): uninitialized, races, barriers, progress, or all.",
)
@click.option(
    "--problem",
    "texts",
    multiple=True,
    metavar="FIELD=N,…",
    help="Compute this problem instead of the trials. May be repeated.",
)
@click.option(
    "--problems",
    "file",
    type=FILE,
    metavar="FILE",
    help="Compute the problems of a file, as `tilewright problems` lists them.",
)
@make_format_option()
@click.option("--together", is_flag=True, help="Compute each problem with as many of KERNELS as it needs.")
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Compute at most N trials per kernel.")
@click.option("--seed", type=click.IntRange(1), default=1, show_default=True, help="Seed for random inputs.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Verify at most N kernels.")
@make_jobs_option("Run N compilers in parallel.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    device_name: str | None,
    settings: tuple[str, ...],
    mode: str | None,
    check_words: tuple[str, ...],
    texts: tuple[str, ...],
    file: Path | None,
    file_format: str | None,
    together: bool,
    trials: int | None,
    seed: int,
    limit: int | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run kernels and compare every element with a reference.

    KERNELS are kernel names or digests, preselected sets, kernel-set files (.toml, .json), or an op with -s.
    Kernels that are not built are built first. Each runs on trials with edge cases: sizes of 1, primes, sizes
    around a tile, tails, splits, padded strides. The tolerance of an element is derived from types
    and sums; it is not a fixed number. "of limit" is the share of the tolerance that was used.

    With --problems each kernel runs on the problems of the file that have its types, layout and all
    other fields that it fixes; the remaining problems are counted.

    With --together the problems of --problem or --problems are computed as `run` computes them, by
    several kernels one after another if needed. --problem must then give every field.

    The exit code is 1 if a result is wrong, the device stopped a kernel, or a problem is not
    supported.
    """
    from tilewright.emulator.launch import Mode

    device = _find_device(device_name)
    if device.kind != "emulated" and mode is not None:
        raise InvalidValueError(f"--mode applies to emulated devices only; {device.name} is a GPU")
    if device.kind != "emulated" and check_words:
        raise InvalidValueError(f"--check applies to emulated devices only; {device.name} is a GPU")
    how = VerifyOptions(device, Mode(mode or "strict") if device.kind == "emulated" else None, seed, jobs, as_json)
    with report_progress(as_json=as_json), report_task("choosing kernels"):
        kernels = find_named_kernels(resolve_subjects(subjects), settings, device.arch.name, limit)
    asked = VerifyRequest(texts, file, file_format, trials)
    with device.emulating(checks=check_words) if check_words else nullcontext():
        good = (_verify_together if together else _verify_each)(kernels, asked, how)
    ctx.exit(0 if good else 1)


def _verify_each(kernels: Sequence[Kernel], asked: VerifyRequest, how: VerifyOptions) -> bool:
    """Verify each kernel by itself and print the results. Returns whether all are correct."""
    from tilewright.registry.registry import Registry

    with report_progress(as_json=how.as_json, steps=True):
        listed = _read_listed_problems(kernels, asked)
        registry = Registry.of(list(kernels) if listed is None else list(listed.tried)).build(how.jobs)
        checks = _run_checks(registry, asked, listed, how)
    if how.as_json:
        print_json({**_to_json(how.device, registry, checks), **({} if listed is None else _list_untried(listed))})
    else:
        _print(how.device, registry, {kernel.slug: found for kernel, found in checks.items()}, len(checks))
        if listed is not None:
            _print_untried(listed)
    return not registry.failures and all(check.ok for found in checks.values() for check in found)


def _verify_together(kernels: Sequence[Kernel], asked: VerifyRequest, how: VerifyOptions) -> bool:
    """Verify whole problems, each with as many kernels as it needs, and print the results."""
    from tilewright.dispatch.verify import verify_plan
    from tilewright.registry.registry import Registry

    with report_progress(as_json=how.as_json, steps=True):
        problems = _read_whole_problems(kernels, asked)
        registry = Registry.of(list(kernels)).build(how.jobs)
        built = registry.artifacts
        checks = verify_plan(built, how.device, problems, how.seed, how.mode) if built else []
    if how.as_json:
        print_json({**_to_json(how.device, registry, {}), "plans": [_describe_plan(check) for check in checks]})
    else:
        _print(how.device, registry, {"whole problems": checks} if built else {}, len(built), whole=True)
    return not registry.failures and all(check.ok for check in checks)


def _find_device(name: str | None) -> Device:
    from tilewright.runtime.device import Device, current_device
    from tilewright.runtime.hip_library import require_emulator_extra

    require_emulator_extra("verifying")  # before anything is built
    found = Device(name) if name is not None else current_device()
    if found is None:
        raise InvalidValueError("no device is given: use --device gpu:0, --device emulated:gfx942 or TILEWRIGHT_DEVICE")
    return found


def _read_listed_problems(kernels: Sequence[Kernel], asked: VerifyRequest) -> AssignedProblems | None:
    """The problems of --problem or of a file, assigned to kernels of their kind; None without these."""
    from tilewright.ops import find_op
    from tilewright.ops.problem_values import format_problem_value

    file = asked.file
    if file is None:
        if asked.file_format is not None:
            raise InvalidValueError("--format applies to files only: use it with --problems FILE")
        return assign_texts(kernels, asked.texts) if asked.texts else None
    if asked.texts or asked.trials:
        raise InvalidValueError("--problem, --problems and --trials exclude each other: give one of them")
    ops = sorted({kernel.op for kernel in kernels})
    if len(ops) > 1:
        raise InvalidValueError(f"{file} holds problems of one op, but the kernels are of {', '.join(ops)}")
    listed = assign_problems(read_listed_problems(find_op(ops[0]), kernels, file, asked.file_format), kernels)
    if not listed.tried:
        kind = ", ".join(
            f"{name} {format_problem_value(value)}"
            for name, value in get_fixed_fields(kernels[0], listed.left[0]).items()
        )
        raise InvalidValueError(
            f"{file} has {format_count(len(listed.left), 'problem')}, none for these kernels; "
            f"the first kernel is for {kind}"
        )
    return listed


def _run_checks(
    registry: Registry, asked: VerifyRequest, listed: AssignedProblems | None, how: VerifyOptions
) -> dict[Kernel, list[Check]]:
    from tilewright.dispatch.verify import verify

    found = {}
    with report_task("kernels", len(registry.artifacts)) as advance:
        for kernel, artifact in registry.artifacts.items():
            problems = listed.tried[kernel] if listed else _list_trials(kernel, asked, how)
            found[kernel] = verify(kernel, artifact, how.device, problems, how.seed, how.mode)
            advance(kernel.slug)
    return found


def _read_whole_problems(kernels: Sequence[Kernel], asked: VerifyRequest) -> list[Any]:
    """The problems that the kernels compute together."""
    from tilewright.ops import find_op
    from tilewright.ops.problem_list import read_problems

    ops = sorted({kernel.op for kernel in kernels})
    if len(ops) > 1:
        raise InvalidValueError(f"{' and '.join(ops)} kernels cannot compute a problem together: give those of one op")
    if asked.trials or bool(asked.texts) == (asked.file is not None):
        raise InvalidValueError("--together needs problems: give either --problem or --problems")
    if asked.file is not None:
        return read_problems(ops[0], asked.file, asked.file_format)
    return [read_problem(find_op(ops[0]), None, text) for text in asked.texts]


def _list_trials(kernel: Kernel, asked: VerifyRequest, how: VerifyOptions) -> list[Any]:
    from tilewright.dispatch.plan import get_execution

    return list(get_execution(kernel.op).trials(kernel.config, how.device.arch)[: asked.trials])


def _to_json(device: Device, registry: Registry, checks: Mapping[Kernel, Sequence[Check]]) -> dict[str, Any]:
    return {
        "device": device.name,
        "kernels": [
            {"name": kernel.slug, "checks": [_describe_check(check) for check in found]}
            for kernel, found in checks.items()
        ],
        "failures": [
            {"name": kernel.slug, "errors": failure.facts.get("errors", [])}
            for kernel, failure in registry.failures.items()
        ],
    }


def _list_untried(listed: AssignedProblems) -> dict[str, Any]:
    return {"untried": {"kernels": [kernel.slug for kernel in listed.idle], "problems": len(listed.left)}}


def _print_untried(listed: AssignedProblems) -> None:
    if listed.idle:
        print_remark(f"not run, since no problem is of their kind: {format_count(len(listed.idle), 'kernel')}")
    if listed.left:
        print_remark(f"not tried, since no kernel is of their kind: {format_count(len(listed.left), 'problem')}")


def _describe_plan(check: Check) -> dict[str, Any]:
    from tilewright.ops.problem_text import list_problem_fields

    kernels = [kernel.slug for kernel in (check.kernel, *check.later)] if check.verdict != "unsupported" else []
    return {**_describe_check(check), "problem": list_problem_fields(check.problem, None), "kernels": kernels}


def _describe_check(check: Check) -> dict[str, Any]:
    from dataclasses import asdict

    from tilewright.ops.problem_text import list_problem_fields

    return {
        "problem": list_problem_fields(check.problem, check.kernel.config),
        "verdict": check.verdict,
        "message": check.message,
        "error_ulps": _to_finite(check.error_ulps),
        "error_abs": _to_finite(check.error_abs),
        "error_rel": _to_finite(check.error_rel),
        "share": _to_finite(check.share),
        "bound": check.bound,
        "element_share": _to_finite(check.element_share),
        "rms_share": _to_finite(check.rms_share),
        "worst": list(check.worst),
        "counters": None if check.counters is None else asdict(check.counters),
    }


def _to_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _print(
    device: Device, registry: Registry, checks: Mapping[str, Sequence[Check]], kernels: int, *, whole: bool = False
) -> None:
    """Print a table for each title, and the errors. `whole` problems are printed with all their fields."""
    for title, found in checks.items():
        print_table(
            ("problem", *NUMBERS, "verdict"),
            [_make_row(check, _format_problem(check, whole).replace(",", " ")) for check in found],
            numbers=NUMBERS,
            title=title,
        )
        for check in found:
            if not check.ok:
                click.echo(f"{mark_bad(check.verdict)} {_format_problem(check, whole)}: {check.message}")
    for kernel, failure in registry.failures.items():
        print_heading(kernel.slug)
        click.echo(f"{mark_bad('not built:')} {(failure.facts.get('errors') or ['?'])[0]}")
    every = [check for found in checks.values() for check in found]
    wrong = sum(not check.ok for check in every)
    tried = f"{format_count(len(every), 'problem')} on {format_count(kernels, 'kernel')}, {device.name}"
    click.echo(
        f"\n{mark_good('all right:') if not wrong and not registry.failures else mark_bad(f'{wrong} not ok:')} {tried}"
    )


def _make_row(check: Check, problem: str) -> tuple[Any, ...]:
    from rich.text import Text

    verdict = Text(check.verdict, style="green" if check.ok else "bold red")
    if check.counters is None:
        blank = ("·",) * 6
        errors = ("·",) * 4 if check.verdict in ("fault", "unsupported") else _format_errors(check)
        return (problem, *errors, *blank, verdict)
    return (problem, *_format_errors(check), *_format_counters(check.counters), verdict)


def _format_problem(check: Check, whole: bool) -> str:
    from tilewright.ops.problem_text import format_problem

    return format_problem(check.problem, None if whole else check.kernel.config)


def _format_errors(check: Check) -> tuple[str, ...]:
    return f"{check.error_ulps:.2f}", f"{check.error_abs:.2g}", f"{check.error_rel:.2g}", f"{check.share:.2f}"


def _format_counters(counters: Counters) -> tuple[str, ...]:
    return (
        f"{sum(counters.instructions.values()):,}",
        f"{counters.matrix_flops / 1e6:.1f}",
        f"{counters.global_read_bytes / 1024:,.0f}",
        f"{counters.global_write_bytes / 1024:,.0f}",
        f"{counters.cache_lines:,}",
        f"{counters.bank_conflict_cycles:,}",
    )
