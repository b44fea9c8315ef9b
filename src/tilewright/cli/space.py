"""`tilewright space`: count the legal kernels of a space and those that rules removed."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError, choose
from tilewright.base.events import report_task
from tilewright.cli.command import FILE, Command, Option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.gpu_option import PROJECT, make_gpu_option
from tilewright.cli.kernel_choice import DECLARED, DEFAULT, apply_settings, find_set, make_set, read_tile_engine_set
from tilewright.cli.named_kernels import NamedKernels, resolve_subject
from tilewright.cli.output import add_json_option, format_count, print_heading, print_json, print_table
from tilewright.cli.progress import PATIENCE_IN_LOGS_S, report_progress
from tilewright.cli.settings import make_declared_space, make_setting_option

if TYPE_CHECKING:
    from tilewright.ops.kernel_set import KernelSet, SetReport
    from tilewright.ops.op import Op


@click.command(
    cls=Command,
    examples=(
        "tilewright space fp16_rcr_essential --gpu gfx942,gfx950",
        "tilewright space gemm --gpu gfx942 -s variant=standard -s dtype=fp16,bf16 \\",
        "    -s layout=rcr -s 'block=*' -s waves=2x2x1,4x1x1 -s 'mma=*' -s 'pipeline=*' \\",
        "    -s 'scheduler=*' -s 'epilogue=*' --sample 5",
        "tilewright space gemm --gpu gfx942 --tile-engine config.json -s dtype=fp16 -s layout=rcr",
        "tilewright space fmha --gpu gfx942,gfx950 --by family",
    ),
)
@click.argument("subject", metavar="OP|SET", shell_complete=complete_kernels)
@make_gpu_option("archs", "Count for these GPUs.", required=True, default=PROJECT, several=True)
@make_setting_option(
    "VALUES", "Set the values of a field, separated by commas, or '*' for all worth trying. May be repeated."
)
@click.option(
    "--set",
    "set_name",
    cls=Option,
    aliases=("--preselected",),
    metavar="NAME|FILE",
    help="Use a preselected set, a built-in space (tile_engine_default), or a kernel-set file (.toml, .json).",
)
@click.option(
    "--tile-engine",
    type=FILE,
    help="Use a configuration file of CK's tile_engine; -s sets types and layout.",
)
@click.option(
    "--by",
    cls=Option,
    metavar="FIELD",
    show_default="the op's kind",
    help="Count kernels by the values of this field.",
)
@click.option("--list", "listed", type=click.IntRange(1), metavar="N", help="List the first N kernels.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="List N random kernels.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of --sample.")
@add_json_option
def command(
    *,
    subject: str,
    archs: tuple[str, ...],
    settings: tuple[str, ...],
    set_name: str | None,
    tile_engine: Path | None,
    by: str | None,
    listed: int | None,
    sample: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Count legal kernels of a space, and those each rule removed.

    A space is declared with -s, or comes from SET or --set (then -s changes fields of it), or from
    --tile-engine. Without these options it is the op's space `default`, or the space of all values
    if the op has none. A combination that breaks several rules is counted at the first of them.
    """
    from tilewright import arch as gpus
    from tilewright.arch.ck_api import find_current_api

    named = resolve_subject(subject)
    op, ck = named.op, find_current_api()
    for name in archs:
        gpus.load(name)
    kernel_set = _find_kernel_set(named, settings, set_name, tile_engine)
    field = choose(f"field of {op.name}", by or op.structure_fields[0], op.field_names)
    started = time.perf_counter()
    with report_progress(as_json=as_json, after_s=PATIENCE_IN_LOGS_S):
        reports = [_count_kernels(kernel_set, name, field) for name in archs]
        names = {name: _list_names(kernel_set, name, listed, sample, seed) for name in archs}
    elapsed = time.perf_counter() - started
    counts = {report.arch: _count_by_value(op, field, report) for report in reports}
    if as_json:
        print_json({"ck": ck.generation, **_to_json(reports, names, field, counts, elapsed)})
        return
    _print(op, reports, field, counts)
    tree = f" for CK Tile {ck.generation}" if op.ck_probes else ""
    click.echo(f"\ncounted in {elapsed:.2f} s{tree}")
    for line in _explain_empty_values(op, kernel_set, field, reports):
        click.echo(line)
    for name, slugs in names.items():
        if slugs:
            print_heading(f"{format_count(len(slugs), 'kernel')} on {name}")
            click.echo("\n".join(slugs))


def _find_kernel_set(
    named: NamedKernels, settings: tuple[str, ...], set_name: str | None, tile_engine: Path | None
) -> KernelSet:
    op = named.op
    if not named.is_op and (set_name or tile_engine):
        raise InvalidValueError(f"{named.text} and --set or --tile-engine both name kernels: give one of them")
    if named.kernel is not None:
        raise InvalidValueError(
            f"{named.text} is one kernel, not a space. `tilewright check {named.text}` explains it."
        )
    if named.kernel_set is not None:
        return apply_settings(op, named.kernel_set, settings)
    if set_name is not None and tile_engine is not None:
        raise InvalidValueError("--set and --tile-engine exclude each other: give one of them")
    if set_name is not None:
        return apply_settings(op, find_set(op, set_name), settings)
    if tile_engine is not None:
        return read_tile_engine_set(op, tile_engine, settings)
    if not settings and DEFAULT in op.spaces():
        return find_set(op, DEFAULT)
    return make_set(op, DECLARED, make_declared_space(op, settings))


def _count_kernels(kernel_set: KernelSet, arch: str, by: str) -> SetReport:
    with report_task(f"counting on {arch}"):
        return kernel_set.report(arch, by)


def _count_by_value(op: Op, field: str, report: SetReport) -> dict[str, int]:
    """Legal kernels by the value of a field, as text."""
    from tilewright.ops.fields import list_fields

    kind = list_fields(op.config_type)[field].kind
    return {kind.to_token(value): part.legal for value, part in report.by.items()}


def _explain_empty_values(op: Op, kernel_set: KernelSet, field: str, reports: list[SetReport]) -> list[str]:
    """A line for each value of the field without a legal kernel on any GPU: the rules and the defaults they read."""
    from tilewright.ops.fields import list_fields

    fields = list_fields(op.config_type)
    open_ = [n for n, f in fields.items() if not f.required and all(n not in s.declared for s in kernel_set.spaces)]
    lines = []
    for value in dict.fromkeys(value for report in reports for value in report.by):
        found = [report.by[value] for report in reports if value in report.by]
        if any(part.legal for part in found):
            continue
        rules = list({c.rule.code: c.rule for part in found for c in part.removed if c.removed}.values())
        kept = [n for n in open_ if any(n in rule.reads for rule in rules)]
        defaults = ", ".join(f"{n}={fields[n].kind.to_token(fields[n].default) or 'true'}" for n in kept)
        why = f" These fields were not set and keep their defaults: {defaults}." if kept else ""
        codes = ", ".join(rule.code for rule in rules)
        lines.append(f"{field} {fields[field].kind.to_token(value)}: no combination is legal; removed by {codes}.{why}")
    return lines


def _list_names(kernel_set: KernelSet, arch: str, listed: int | None, sample: int | None, seed: int) -> list[str]:
    if not listed and not sample:
        return []
    with report_task(f"naming kernels on {arch}"):
        if sample:
            return _sample_kernels(kernel_set, arch, sample, seed)
        return [kernel.slug for kernel in itertools.islice(kernel_set.kernels(arch), listed)]


def _sample_kernels(kernel_set: KernelSet, arch: str, count: int, seed: int) -> list[str]:
    """`count` random kernels, each equally likely; the same seed gives the same kernels."""
    rng = random.Random(seed)
    drawn = []
    for index, kernel in enumerate(kernel_set.kernels(arch)):
        if index < count:
            drawn.append(kernel)
        elif (place := rng.randrange(index + 1)) < count:
            drawn[place] = kernel
    return [kernel.slug for kernel in drawn]


def _to_json(
    reports: list[SetReport],
    names: dict[str, list[str]],
    field: str,
    counts: dict[str, dict[str, int]],
    elapsed: float,
) -> dict[str, Any]:
    spaces = [
        {**report.to_json(), "by": {field: counts[report.arch]}, "listed": names[report.arch]} for report in reports
    ]
    return {"archs": spaces, "elapsed_s": round(elapsed, 3)}


def _print(op: Op, reports: list[SetReport], field: str, counts: dict[str, dict[str, int]]) -> None:
    columns = [report.arch for report in reports]
    rows: list[tuple[str, ...]] = [("", "all combinations", *(f"{r.raw:,}" for r in reports))]
    removed = [report.removed for report in reports]
    for rule in op.rules:
        numbers = [entry.get(rule.code, 0) for entry in removed]
        if any(numbers):
            rows.append((rule.code, rule.slug, *(f"−{n:,}" if n else "·" for n in numbers)))
    rows.append(("", "legal", *(f"{r.legal:,}" for r in reports)))
    values = list(dict.fromkeys(value for name in columns for value in counts[name]))
    if len(values) > 1:
        rows += [
            ("", f"  {field} {value}", *(f"{counts[name].get(value, 0):,}" for name in columns)) for value in values
        ]
    if any(report.kernels != report.legal for report in reports):
        rows.append(("", "distinct kernels", *(f"{r.kernels:,}" for r in reports)))
    print_table(("code", "rule", *columns), rows, numbers=columns, whole=("code", *columns))
