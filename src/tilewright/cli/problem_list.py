"""`tilewright problems`: list the problems of a file, print them in another format, or describe their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import FILE, Command, make_format_option
from tilewright.cli.output import add_json_option, format_count, print_json, print_table

if TYPE_CHECKING:
    from tilewright.ops.op import Op

NUMBERS = ("GFLOP", "MB", "FLOP/B")


@click.command(
    cls=Command,
    examples=(
        "tilewright problems fmha",
        "tilewright problems gemm shapes.csv",
        "tilewright problems gemm shapes.csv --to json > shapes.json",
    ),
)
@click.argument("op_name", metavar="OP")
@click.argument("file", type=FILE, required=False)
@make_format_option("Read the file as csv, json or a format of the op.")
@click.option(
    "--to", "target", type=click.Choice(["csv", "json"]), help="Print the list in this format instead of a table."
)
@add_json_option
def command(*, op_name: str, file: Path | None, file_format: str | None, target: str | None, as_json: bool) -> None:
    """List the fields of an op's problems, or a file's problems.

    Without a FILE, each field is listed with the values that it takes, its default and its meaning.
    A problem on a command line is FIELD=VALUE,… with these fields. With a FILE, its problems are
    listed with their FLOPs and traffic.

    The first line of a CSV file names fields of the op's problems. Sizes with several dimensions are
    written 28x28, and an empty cell is the default. A JSON file is a list of objects. Some ops also
    read files of other tools; the error message for an unknown format lists them.

    MB is the minimum traffic: every operand is read once and the result written once. FLOP/B is the
    arithmetic intensity that follows from it.
    """
    from tilewright.ops import find_op
    from tilewright.ops.problem_list import WRITERS, read_problems

    if target is not None and as_json:
        raise InvalidValueError("--to and --json exclude each other: give one of them")
    op = find_op(op_name)
    if file is None:
        if file_format is not None or target is not None:
            raise InvalidValueError("--format and --to are for the problems of a file: give FILE")
        _list_fields(op, as_json=as_json)
        return
    problems = read_problems(op, file, file_format)
    if target is not None:
        click.echo(WRITERS[target](op, problems), nl=False)
    elif as_json:
        print_json({"op": op.name, "file": str(file), "problems": [_to_json(problem) for problem in problems]})
    else:
        _print(op, problems)


def _list_fields(op: Op, *, as_json: bool) -> None:
    from tilewright.ops.problem_field import list_declared_fields
    from tilewright.ops.problem_list import list_parameters

    declared = list_declared_fields(op.problem_type)
    rows = []
    for name, parameter in list_parameters(op).items():
        # Another package's problem may be a class without declarations.
        field = declared.get(name)
        default = str(parameter.default) if field is None else field.describe_default()
        required = parameter.default is parameter.empty
        takes, meaning = ("", "") if field is None else (field.kind.describe(), field.doc)
        rows.append((name, takes, "required" if required else default, meaning))
    headings = ("field", "takes", "default", "meaning")
    if as_json:
        print_json({"op": op.name, "fields": [dict(zip(headings, row, strict=True)) for row in rows]})
    else:
        print_table(headings, rows, whole=("field",))


def _to_json(problem: Any) -> dict[str, Any]:
    from tilewright.ops.problem_list import list_needed_fields

    document: dict[str, Any] = {"problem": list_needed_fields(problem)}
    if _is_counted(problem):
        document |= {"flops": problem.flops, "bytes_moved": problem.bytes_moved}
        document["intensity"] = round(problem.flops / problem.bytes_moved, 3)
    return document


def _is_counted(problem: Any) -> bool:
    """Whether FLOPs and traffic are known: not every op defines them."""
    return hasattr(problem, "flops") and hasattr(problem, "bytes_moved")


def _print(op: Op, problems: Sequence[Any]) -> None:
    from tilewright.ops.problem_list import list_needed_fields

    fields = [list_needed_fields(problem) for problem in problems]
    common = _find_common(fields) if len(problems) > 1 else {}
    texts = [_format_fields({n: v for n, v in own.items() if n not in common}) for own in fields]
    counted = all(_is_counted(problem) for problem in problems)
    numbers = NUMBERS if counted else ()
    figures = [_format_figures(problem.flops, problem.bytes_moved) if counted else () for problem in problems]
    print_table(("problem", *numbers), [(t, *f) for t, f in zip(texts, figures, strict=True)], numbers=numbers)
    if common:
        click.echo(f"\nall of them: {_format_fields(common)}")
    totals = ""
    if counted:
        gflop, megabytes, _ = _format_figures(sum(p.flops for p in problems), sum(p.bytes_moved for p in problems))
        totals = f": {gflop} GFLOP, {megabytes} MB"
    click.echo(f"\n{format_count(len(problems), f'{op.name} problem')}{totals}")


def _find_common(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields that have one value in all problems."""
    first, *others = fields
    return {name: value for name, value in first.items() if all(o.get(name) == value for o in others)}


def _format_fields(fields: Mapping[str, Any]) -> str:
    from tilewright.ops.problem_values import format_problem_value

    return " ".join(f"{name}={format_problem_value(value)}" for name, value in fields.items()) or "the same"


def _format_figures(flops: int, moved: int) -> tuple[str, str, str]:
    return f"{flops / 1e9:,.3f}", f"{moved / 1e6:,.2f}", f"{flops / moved:,.1f}"
