"""`tilewright knobs`: list the environment variables and the defaults of the project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tilewright.base.defaults import KEYS, OWN_FILE, PROJECT_FILE, TABLE
from tilewright.base.errors import KnobError
from tilewright.base.knobs import KNOBS, find_unknown_variables
from tilewright.cli.command import Command
from tilewright.cli.defaults import VARIABLES, read_defaults
from tilewright.cli.output import add_json_option, mark_bad, print_json, print_table

# The password in the address of a server.
_PASSWORD = re.compile(r"(?<=://)([^:@/]*):[^@/]*@")


@click.command(cls=Command, examples=("tilewright knobs", "tilewright knobs --json"))
@add_json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the environment variables and the project's defaults.

    Shows the type, current value and meaning of each variable, and the defaults that commands read
    from tilewright.toml or from [tool.tilewright] in pyproject.toml, in this folder or the nearest
    one above it.

    The exit code is 1 if a variable has an invalid value, or begins with TILEWRIGHT_ and is unknown.
    """
    entries = [_describe_knob(knob) for knob in KNOBS]
    unknown = find_unknown_variables()
    defaults = [_describe_default(ctx, key) for key in read_defaults(ctx).values]
    if as_json:
        misspelt = [
            {"name": each.name, "kind": None, "value": None, "problem": str(each), "doc": ""} for each in unknown
        ]
        print_json([*entries, *misspelt, *defaults])
    else:
        rows = [(e["name"], _format_value(e), f"({e['kind']}) {e['doc']}") for e in entries]
        print_table(("variable", "value", "type and meaning"), rows, whole=("variable",))
        for each in unknown:
            click.echo(f"{mark_bad('unknown:')} {each}")
        _print_defaults(ctx, defaults)
    ctx.exit(1 if unknown or any(entry["problem"] for entry in entries) else 0)


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


def _describe_default(ctx: click.Context, key: str) -> dict[str, Any]:
    defaults = read_defaults(ctx)
    return {
        "name": key,
        "kind": "default",
        "value": defaults.values[key],
        "problem": "",
        "doc": KEYS[key],
        "file": str(defaults.path),
    }


def _print_defaults(ctx: click.Context, entries: list[dict[str, Any]]) -> None:
    defaults = read_defaults(ctx)
    if defaults.path is None:
        click.echo(
            f"\nNo defaults: neither {OWN_FILE} nor a {PROJECT_FILE} with [{TABLE}] is here or in a folder above."
        )
        return
    rows = [(e["name"], f"{e['value']}{_describe_override(e['name'])}", e["doc"]) for e in entries]
    print_table(("default", "value", "meaning"), rows, whole=("default",), title=f"Defaults from {defaults.path}")
    if defaults.unused is not None:
        click.echo(f"[{TABLE}] in {defaults.unused} is not used: {OWN_FILE} in the same folder wins.")


def _describe_override(key: str) -> str:
    overridden = key in VARIABLES and VARIABLES[key].get() is not None
    return f" (overridden by {VARIABLES[key].name})" if overridden else ""


def _format_value(entry: dict[str, Any]) -> str:
    if entry["problem"]:
        return str(entry["problem"])
    return "not set" if entry["value"] is None else str(entry["value"])
