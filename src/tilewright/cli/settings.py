"""`-s FIELD=VALUE`: from the words of a command line to the config or space of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError, UnknownValueError, choose

if TYPE_CHECKING:
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.op import Op
    from tilewright.ops.space import Space

F = TypeVar("F", bound=Callable[..., Any])


def subject_options(command: F) -> F:
    """SUBJECT, --arch and -s: the ways to name one kernel."""
    for decorate in reversed(
        (
            click.argument("subject", metavar="OP|KERNEL"),
            click.option("--arch", metavar="GPU", help="The GPU; a kernel's name has its own."),
            setting_option("VALUE", "A field of the config. Repeat it for each field."),
        )
    ):
        command = decorate(command)
    return command


def setting_option(values: str, text: str) -> Callable[[F], F]:
    """The option -s."""
    return click.option("-s", "--setting", "settings", multiple=True, metavar=f"FIELD={values}", help=text)


def read_settings(texts: Iterable[str]) -> dict[str, str]:
    """FIELD=VALUE pairs by field; a field may be named once."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InvalidValueError(f"-s takes FIELD=VALUE, got {text!r}")
        if name in settings:
            raise InvalidValueError(f"-s {name} is given twice: {settings[name]} and {value}")
        settings[name] = value
    return settings


def named_kernel(subject: str, arch: str | None, texts: Iterable[str]) -> Kernel:
    """The kernel that a name or an op with settings describes; settings change a name's fields."""
    from tilewright import arch as gpus
    from tilewright.ops import all_ops, op_named, parse_kernel, plugin_note

    settings = read_settings(texts)
    names = [op.name for op in all_ops()]
    if subject in names:
        op = op_named(subject)
        if arch is None:
            known = ", ".join(gpus.arch_names())
            raise InvalidValueError(f"say which GPU {subject} is for: --arch GPU. Known: {known}.")
        values = _values(op, settings)
        _require_all(op, values)
    elif subject.partition("-")[0] in names:
        named = parse_kernel(subject)
        op = op_named(named.op)
        arch = arch or named.arch
        values = {n: getattr(named.config, n) for n in op.field_names} | _values(op, settings)
    else:
        raise UnknownValueError("op", subject.partition("-")[0], names, plugin_note())
    gpus.load(arch)  # an unknown GPU is an error before anything else is
    return op.kernel(op.config(**values), arch)


def declared_space(op: Op, texts: Iterable[str]) -> Space:
    """The space of an op that settings declare: values separated by commas, or `*`; what is not named is `*`."""
    from tilewright.ops.space import Space

    return Space(op, read_values(op, texts))


def read_values(op: Op, texts: Iterable[str]) -> dict[str, Any]:
    """FIELD=VALUES as a space takes them: "*" or a list; nothing but the names is checked."""
    from tilewright.ops.declaration import STAR

    declared: dict[str, Any] = {}
    for name, text in read_settings(texts).items():
        _check_name(op, name)
        if text == STAR and name in op.shorthands and op.shorthands[name].stars is None:
            raise InvalidValueError(f"{name} stands for several fields: list its values, not '*'")
        declared[name] = STAR if text == STAR else text.split(",")
    return declared


def _values(op: Op, settings: Mapping[str, str]) -> dict[str, Any]:
    """Field → value, with shorthands written out."""
    values: dict[str, Any] = {}
    for name, text in settings.items():
        _check_name(op, name)
        for field, value in _written_out(op, name, text).items():
            if field in values:
                raise InvalidValueError(f"{field} is given twice, once through a shorthand")
            values[field] = value
    return values


def _written_out(op: Op, name: str, text: str) -> dict[str, Any]:
    if name not in op.shorthands:
        return {name: text}
    return op.shorthands[name].written_out(text)


def _check_name(op: Op, name: str) -> None:
    choose(f"field of {op.name}", name, (*op.field_names, *op.shorthands))


def _require_all(op: Op, given: Iterable[str]) -> None:
    """An error that lists every field still to be given, with what it takes."""
    from tilewright.ops.fields import fields_of

    present = set(given)
    fields = fields_of(op.config_type)
    missing = [f for n, f in fields.items() if f.required and n not in present]
    if not missing:
        return
    width = max(len(field.name) for field in missing)
    lines = [f"  {field.name:<{width}}  {field.kind.describe()}" for field in missing]
    hint = _shorthand_hint(op, {field.name for field in missing})
    count = f"{len(missing)} more field{'s' if len(missing) != 1 else ''}"
    listing = "\n".join(lines)
    raise InvalidValueError(f"{op.name} needs {count}, each as -s FIELD=VALUE:\n{listing}{hint}")


def _shorthand_hint(op: Op, missing: set[str]) -> str:
    """Names the shorthands that would fill in only fields that are missing."""
    return "".join(
        f"\n  {name}=… gives all of {', '.join(short.fields)} at once."
        for name, short in op.shorthands.items()
        if missing.issuperset(short.fields)
    )
