"""`tilewright check`: whether a config is legal, why not, and legal configs near it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.command import Command
from tilewright.cli.named_kernels import add_subject_options, resolve_kernel
from tilewright.cli.output import (
    add_json_option,
    format_count,
    mark_bad,
    mark_good,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.rule import Verdict
    from tilewright.ops.suggestions import Suggestion


@click.command(
    cls=Command,
    examples=(
        "tilewright check gemm --gpu gfx942 -s variant=standard -s dtype=fp16 -s layout=rcr \\",
        "    -s block=128x128x32 -s waves=2x2x1 -s mma=32x32x16 -s pipeline=compv3 \\",
        "    -s scheduler=intrawave -s epilogue=cshuffle",
        "tilewright check gemm-gfx942-standard-…-9a6900b412ca -s block=96x128x32",
    ),
)
@add_subject_options
@add_json_option
@click.pass_context
def command(ctx: click.Context, subject: str, arch: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Explain whether a config is legal, and suggest legal ones.

    Shows the result of every rule. For an illegal config, suggests legal configs near it. Give an op
    with a GPU and its fields, or a kernel by its name or digest (then -s changes single fields).

    The exit code is 1 if the config is illegal.
    """
    from tilewright import arch as gpus
    from tilewright.ops import find_op
    from tilewright.ops.rule import list_verdicts
    from tilewright.ops.suggestions import suggest_configs

    kernel = resolve_kernel(subject, arch, settings)
    op, spec = find_op(kernel.op), gpus.load(kernel.arch)
    answers = list_verdicts(op.rules, kernel.config, spec)
    proposals = suggest_configs(op, kernel.config, spec)
    if as_json:
        print_json(_to_json(kernel, spec, answers, proposals))
    else:
        tree = f" with CK Tile {spec.ck.generation}" if op.ck_probes else ""
        _print(kernel, f"{kernel.arch}{tree}", answers, proposals)
    ctx.exit(0 if all(answer.passed for answer in answers) else 1)


def _to_json(kernel: Kernel, spec: Arch, answers: Sequence[Verdict], proposals: Sequence[Suggestion]) -> dict[str, Any]:
    from tilewright.ops.fields import dump_config
    from tilewright.ops.kernel import Kernel

    return {
        "kernel": kernel.slug,
        "op": kernel.op,
        "arch": kernel.arch,
        "ck": spec.ck.generation,
        "config": dump_config(kernel.config),
        "legal": all(answer.passed for answer in answers),
        "rules": [_describe_verdict(answer) for answer in answers],
        "suggestions": [
            {
                "kernel": Kernel(kernel.op, proposal.config, kernel.arch).slug,
                "changes": _describe_changes(proposal),
            }
            for proposal in proposals
        ],
    }


def _describe_verdict(answer: Verdict) -> dict[str, Any]:
    rule, violation = answer.rule, answer.violation
    entry: dict[str, Any] = {"code": rule.code, "slug": rule.slug, "passed": answer.passed}
    if violation is not None:
        entry |= {
            "message": violation.message,
            "field": violation.field,
            "nearest": violation.nearest,
            "fix": violation.fix,
        }
    return entry


def _describe_changes(proposal: Suggestion) -> dict[str, Any]:
    from tilewright.ops.fields import list_fields

    fields = list_fields(type(proposal.config))
    return {
        name: {"was": fields[name].kind.to_json(was), "proposed": fields[name].kind.to_json(now)}
        for name, (was, now) in proposal.changes.items()
    }


def _print(kernel: Kernel, target: str, answers: Sequence[Verdict], proposals: Sequence[Suggestion]) -> None:
    click.echo(f"{kernel.slug}\n")
    broken_first = sorted(answers, key=lambda answer: answer.passed)
    print_table(("", "code", "rule", "finding"), [_make_row(answer) for answer in broken_first])
    broken = sum(not answer.passed for answer in answers)
    if not broken:
        passed = format_count(len(answers), "rule")
        click.echo(f"\n{mark_good('legal:')} {passed} passed on {target}.")
        return
    rules = format_count(len(answers), "rule")
    click.echo(f"\n{mark_bad('illegal:')} {broken} of {rules} broken on {target}.")
    _print_suggestions(proposals)


def _make_row(answer: Verdict) -> tuple[Any, ...]:
    from rich.text import Text

    rule, violation = answer.rule, answer.violation
    if violation is None:
        what = Text(rule.what, style="dim", no_wrap=True, overflow="ellipsis")
        return Text("✓", style="green"), rule.code, rule.slug, what
    finding = Text(violation.message, style="bold")
    finding.append(f"\nFix: {violation.fix}", style="not bold")
    return Text("✗", style="bold red"), rule.code, Text(rule.slug, style="bold red"), finding


def _print_suggestions(proposals: Sequence[Suggestion]) -> None:
    from tilewright.ops.fields import list_fields

    if not proposals:
        click.echo("No legal config is within three changed fields of this one.")
        return
    rows = []
    for index, proposal in enumerate(proposals, 1):
        fields = list_fields(type(proposal.config))
        changes = "\n".join(
            f"{name}: {fields[name].kind.to_token(was)} → {fields[name].kind.to_token(now)}"
            for name, (was, now) in proposal.changes.items()
        )
        options = " ".join(
            f"-s {name}={_format_value(fields[name].kind, now)}" for name, (_, now) in proposal.changes.items()
        )
        rows.append((str(index), changes, options))
    title = "Nearest legal configs"
    print_table(("#", "change", "as options"), rows, title=title)


def _format_value(kind: Any, value: Any) -> str:
    """The value in the form that -s accepts."""
    return str(value).lower() if isinstance(value, bool) else str(kind.to_token(value))
