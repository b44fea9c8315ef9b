"""`-s FIELD=VALUE`: from command-line arguments to the config or space of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError, choose
from tilewright.cli.completion import complete_settings
from tilewright.cli.defaults import complete_fields

if TYPE_CHECKING:
    from tilewright.ops.fields import ConfigBase
    from tilewright.ops.op import Op
    from tilewright.ops.space import Space

F = TypeVar("F", bound=Callable[..., Any])


def make_setting_option(values: str, text: str) -> Callable[[F], F]:
    """The option -s."""
    return click.option(
        *("-s", "--setting", "settings"),
        multiple=True,
        metavar=f"FIELD={values}",
        shell_complete=complete_settings,
        help=text,
    )


def read_settings(texts: Iterable[str]) -> dict[str, str]:
    """Read FIELD=VALUE pairs. Each field may be given once."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InvalidValueError(f"-s takes FIELD=VALUE, got {text!r}")
        if name in settings:
            raise InvalidValueError(f"-s {name} is given twice: {settings[name]} and {value}")
        settings[name] = value
    return settings


def make_declared_config(op: Op, settings: Mapping[str, str]) -> ConfigBase:
    """The config that settings and the project's defaults give. An error lists all missing fields."""
    values = _expand_settings(op, {**settings, **complete_fields(op, settings)})
    _check_values(op, values)
    _require_all(op, values)
    return op.make_config(**values)


def change_config(op: Op, config: ConfigBase, settings: Mapping[str, str]) -> ConfigBase:
    """A config with other values for the fields that settings name."""
    return op.make_config(**{name: getattr(config, name) for name in op.field_names} | _expand_settings(op, settings))


def make_declared_space(op: Op, texts: Iterable[str]) -> Space:
    """The space of an op that settings declare: values separated by commas, or `*`. Other fields are `*`.

    The project's defaults are settings, too.
    """
    from tilewright.ops.space import Space

    declared = read_values(op, texts)
    return Space(op, declared | {name: [value] for name, value in complete_fields(op, declared).items()})


def read_values(op: Op, texts: Iterable[str]) -> dict[str, Any]:
    """Read FIELD=VALUES for a space: "*" or a list. Only the names are checked."""
    from tilewright.ops.declaration import STAR

    declared: dict[str, Any] = {}
    for name, text in read_settings(texts).items():
        _check_name(op, name)
        if text == STAR and name in op.shorthands and op.shorthands[name].stars is None:
            raise InvalidValueError(f"{name} sets several fields: list its values instead of '*'")
        declared[name] = STAR if text == STAR else text.split(",")
    return declared


def _expand_settings(op: Op, settings: Mapping[str, str]) -> dict[str, Any]:
    """Field → value, with shorthands expanded."""
    values: dict[str, Any] = {}
    for name, text in settings.items():
        _check_name(op, name)
        for field, value in _expand_shorthand(op, name, text).items():
            if field in values:
                raise InvalidValueError(f"{field} is given twice, once through a shorthand")
            values[field] = value
    return values


def _expand_shorthand(op: Op, name: str, text: str) -> dict[str, Any]:
    if name not in op.shorthands:
        return {name: text}
    return op.shorthands[name].expand_value(text)


def _check_name(op: Op, name: str) -> None:
    choose(f"field of {op.name}", name, (*op.field_names, *op.shorthands))


def _check_values(op: Op, values: Mapping[str, Any]) -> None:
    """Raise an error for a value that its field cannot have, before one for missing fields."""
    from tilewright.ops.fields import list_fields

    fields = list_fields(op.config_type)
    for name, value in values.items():
        fields[name].kind.read(name, value)


def _require_all(op: Op, given: Iterable[str]) -> None:
    """Raise an error that lists every missing field with its values."""
    from tilewright.ops.fields import list_fields

    present = set(given)
    fields = list_fields(op.config_type)
    missing = [f for n, f in fields.items() if f.required and n not in present]
    if not missing:
        return
    width = max(len(field.name) for field in missing)
    lines = [f"  {field.name:<{width}}  {field.kind.describe()}" for field in missing]
    hint = _make_shorthand_hint(op, {field.name for field in missing})
    count = f"{len(missing)} more field{'s' if len(missing) != 1 else ''}"
    listing = "\n".join(lines)
    raise InvalidValueError(f"{op.name} needs {count}, each as -s FIELD=VALUE:\n{listing}{hint}")


def _make_shorthand_hint(op: Op, missing: set[str]) -> str:
    """A hint that names the shorthands which set missing fields only."""
    return "".join(
        f"\n  {name}=… sets {', '.join(short.fields)} together."
        for name, short in op.shorthands.items()
        if missing.issuperset(short.fields)
    )
