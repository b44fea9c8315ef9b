"""The defaults of the project in which a command runs: which of them apply, and to which fields of an op."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError

if TYPE_CHECKING:
    from tilewright.base.defaults import Defaults
    from tilewright.ops.op import Op

# Keys whose environment variable wins over the file.
VARIABLES: Mapping[str, knobs.Knob[Any]] = {"device": knobs.DEVICE, "jobs": knobs.JOBS}
# Keys that are fields of ops.
FIELDS = ("dtype", "layout")
_READ, _USED = "tilewright.defaults", "tilewright.defaults.used"


def read_defaults(ctx: click.Context) -> Defaults:
    """The defaults for the current folder. A command reads the file once."""
    if _READ not in ctx.meta:
        from tilewright.base.defaults import find_defaults

        ctx.meta[_READ] = find_defaults(Path.cwd())
    found: Defaults = ctx.meta[_READ]
    return found


def find_default(ctx: click.Context, key: str) -> str | int | None:
    """The value of a key; None if the file does not give it, or an environment variable wins."""
    if key in VARIABLES and VARIABLES[key].get() is not None:
        return None
    return read_defaults(ctx).values.get(key)


def use_default(ctx: click.Context, key: str) -> str | int | None:
    """Like `find_default`. The error message of a command that fails lists the values that it used."""
    found = find_default(ctx, key)
    if found is not None:
        ctx.meta.setdefault(_USED, {})[key] = found
    return found


def describe_default(ctx: click.Context, key: str) -> str | None:
    """The value of a key with its file, for help texts."""
    found = find_default(ctx, key)
    return None if found is None else f"{found}, from {_format_path(read_defaults(ctx))}"


def describe_used_defaults(ctx: click.Context) -> str:
    """A line with the defaults that a command has used; empty if there are none."""
    used: Mapping[str, str | int] = ctx.meta.get(_USED, {})
    if not used.keys() - {"jobs"}:  # no error is about their number
        return ""
    values = ", ".join(f"{key} = {value}" for key, value in used.items() if key != "jobs")
    return f"Defaults from {_format_path(read_defaults(ctx))}: {values}."


def complete_fields(op: Op, given: Collection[str]) -> dict[str, str]:
    """The fields of an op that the file gives, and the command's arguments do not.

    A value that the op does not have is not used: rcr is a layout of GEMM, and attention has none of that name.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return {}
    found = {}
    for key in FIELDS:
        value = find_default(ctx, key)
        if value is not None and _is_open(op, key, given) and _has_value(op, key, str(value)):
            found[key] = str(use_default(ctx, key))
    return found


def _is_open(op: Op, key: str, given: Collection[str]) -> bool:
    """Whether none of the fields that a key sets is given."""
    fields = op.shorthands[key].fields if key in op.shorthands else (key,)
    return key not in given and not any(field in given for field in fields)


def _has_value(op: Op, key: str, value: str) -> bool:
    from tilewright.ops.fields import list_fields

    try:
        if key in op.shorthands:
            op.shorthands[key].expand_value(value)
        elif key in op.field_names:
            list_fields(op.config_type)[key].kind.read(key, value)
        else:
            return False
    except InvalidValueError:
        return False
    return True


def _format_path(defaults: Defaults) -> str:
    """The file as seen from the current folder, if it is there."""
    path = defaults.path
    return "" if path is None else path.name if path.parent == Path.cwd() else str(path)
