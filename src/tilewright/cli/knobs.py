"""`tilewright knobs`: list the environment variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tilewright.base.errors import KnobError
from tilewright.base.knobs import KNOBS
from tilewright.cli.command import Command
from tilewright.cli.output import add_json_option, print_json, print_table

# The password in the address of a server.
_PASSWORD = re.compile(r"(?<=://)([^:@/]*):[^@/]*@")


@click.command(cls=Command, examples=("tilewright knobs", "tilewright knobs --json"))
@add_json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the environment variables that Tilewright reads.

    Shows the type, current value and meaning of each.

    The exit code is 1 if one of them has an invalid value.
    """
    entries = [_describe_knob(knob) for knob in KNOBS]
    if as_json:
        print_json(entries)
    else:
        rows = [(e["name"], _format_value(e), f"({e['kind']}) {e['doc']}") for e in entries]
        print_table(("variable", "value", "type and meaning"), rows, whole=("variable",))
    ctx.exit(1 if any(entry["problem"] for entry in entries) else 0)


def _describe_knob(knob: Any) -> dict[str, Any]:
    value, problem = None, ""
    try:
        value = knob.get()
    except KnobError as error:
        problem = str(error)
    return {
        "name": knob.name,
        "kind": knob.kind,
        "value": _PASSWORD.sub(r"\1:***@", str(value)) if isinstance(value, Path | str) else value,
        "problem": problem,
        "doc": knob.doc,
    }


def _format_value(entry: dict[str, Any]) -> str:
    if entry["problem"]:
        return str(entry["problem"])
    return "not set" if entry["value"] is None else str(entry["value"])
