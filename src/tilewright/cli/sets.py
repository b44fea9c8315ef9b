"""`tilewright sets`: list the preselected kernel sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.command import Command
from tilewright.cli.completion import complete_ops, complete_sets
from tilewright.cli.output import add_json_option, format_count, mark_bad, print_heading, print_json, print_table
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.ops.kernel_set import KernelSet
    from tilewright.ops.op import Op


@click.command(cls=Command, examples=("tilewright sets", "tilewright sets fp16_rcr_essential --op gemm"))
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_sets)
@click.option("--op", "op_name", metavar="OP", shell_complete=complete_ops, help="Show only the sets of this op.")
@add_json_option
def command(name: str | None, op_name: str | None, as_json: bool) -> None:
    """List kernel sets and profiles, or the kernels of a set."""
    from tilewright.base.errors import InvalidValueError, choose
    from tilewright.ops import find_op, list_ops, list_plugin_failures

    for failure in list_plugin_failures():
        click.echo(f"{mark_bad('not loaded:')} {failure}", err=True)
    ops = list_ops() if op_name is None else (find_op(op_name),)
    known = [kernel_set for op in ops for kernel_set in op.sets().values()]
    if name is not None:
        if name in {op.name for op in list_ops()}:
            raise InvalidValueError(f"{name} is an op, not a set. List its sets with: tilewright sets --op {name}")
        choose("preselected set", name, (kernel_set.name for kernel_set in known))
        known = [kernel_set for kernel_set in known if kernel_set.name == name]
    if name is not None:
        with report_progress(as_json=as_json):
            members = _list_members(known[0])
        if as_json:
            print_json({**_to_json(known[0]), "kernels": members})
        else:
            _print_one(known[0], members)
    elif as_json:
        print_json([_to_json(s) for s in known])
    else:
        rows = [(s.op, s.name, _format_counts(s.count_named()), _extract_first_sentence(s.doc)) for s in known]
        print_table(("op", "set", "kernels", "purpose"), rows, whole=("op", "set"))
        _print_profiles(ops)


def _print_profiles(ops: Iterable[Op]) -> None:
    rows = [
        (op.name, name, ", ".join(profile.aliases), profile.doc) for op in ops for name, profile in op.profiles.items()
    ]
    if rows:
        click.echo()
        print_table(("op", "profile", "receipts", "purpose"), rows, whole=("op", "profile"))


def _list_members(kernel_set: KernelSet) -> dict[str, list[str]]:
    return {arch: [k.slug for k in kernel_set.kernels(arch)] for arch in kernel_set.archs}


def _format_counts(counts: dict[str, int]) -> str:
    """`84 on gfx90a, gfx942; 90 on gfx950`."""
    by_count: dict[int, list[str]] = {}
    for arch, count in counts.items():
        by_count.setdefault(count, []).append(arch)
    return "; ".join(f"{count} on {', '.join(archs)}" for count, archs in by_count.items())


def _extract_first_sentence(doc: str) -> str:
    return " ".join(doc.split()).partition(". ")[0].removesuffix(".")


def _to_json(kernel_set: KernelSet) -> dict[str, Any]:
    return {
        "name": kernel_set.name,
        "op": kernel_set.op,
        "doc": kernel_set.doc,
        "kernels": kernel_set.count_named(),
    }


def _print_one(kernel_set: KernelSet, members: dict[str, list[str]]) -> None:
    title = click.style(kernel_set.name, bold=True)
    click.echo(f"{title}  ({kernel_set.op})\n{' '.join(kernel_set.doc.split())}")
    for arch, slugs in members.items():
        print_heading(f"{format_count(len(slugs), 'kernel')} on {arch}")
        click.echo("\n".join(slugs))
