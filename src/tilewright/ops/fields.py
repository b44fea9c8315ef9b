"""Types of config fields: the values that a field accepts, and how they are written in names and files.

A config class is a frozen dataclass whose fields are declared with `config_field`. All code that needs the fields
(names, parsing, spaces, files, documentation) reads them from here, so a new field is one line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Protocol, TypeVar, overload

from tilewright.arch.dtype_names import read_dtype_name
from tilewright.arch.spec import Shape
from tilewright.base.document_values import expect_integer, format_value, is_digits, to_integer
from tilewright.base.errors import InvalidValueError, UnknownValueError, choose

C = TypeVar("C", bound="ConfigBase")
V = TypeVar("V")


class FieldType(Protocol[V]):
    """How values of a Python type are read, checked and written."""

    def read(self, name: str, value: object) -> V:
        """The value of field `name`, from Python, TOML, JSON or a token. Raises `InvalidValueError`."""

    def to_token(self, value: V) -> str:
        """The value as a part of a kernel's name. `read` is the inverse."""

    def to_json(self, value: V) -> object:
        """The value as JSON."""

    def describe(self) -> str:
        """The accepted values, for documentation."""


@dataclass(frozen=True)
class ChoiceType:
    """One of a closed list of names."""

    values: tuple[str, ...]

    def read(self, name: str, value: object) -> str:
        return choose(name, value, self.values)

    def to_token(self, value: str) -> str:
        return str(value)

    def to_json(self, value: str) -> str:
        return value

    def describe(self) -> str:
        return ", ".join(self.values)


@dataclass(frozen=True)
class DtypeType(ChoiceType):
    """One of a closed list of data types. Types of NumPy and torch, and their names, are accepted, too."""

    def read(self, name: str, value: object) -> str:
        return choose(name, read_dtype_name(value), self.values)


@dataclass(frozen=True)
class FlagType:
    """True or false."""

    values: tuple[bool, ...] = (False, True)

    def read(self, name: str, value: object) -> bool:
        if value is True or value is False:
            return value
        if value in ("true", "false"):
            return value == "true"
        raise UnknownValueError(name, value, ("true", "false"))

    def to_token(self, value: bool) -> str:
        return "" if value else "false"

    def to_json(self, value: bool) -> bool:
        return value

    def describe(self) -> str:
        return "false, true"


@dataclass(frozen=True)
class CountType:
    """An integer within bounds."""

    least: int
    most: int

    def read(self, name: str, value: object) -> int:
        if isinstance(value, str) and is_digits(value):
            value = int(value)
        value = expect_integer(name, value)
        if not self.least <= value <= self.most:
            raise InvalidValueError(f"{name} is {value}, must be {self.least} to {self.most}")
        return value

    def to_token(self, value: int) -> str:
        return str(value)

    def to_json(self, value: int) -> int:
        return value

    def describe(self) -> str:
        return f"{self.least} to {self.most}"


@dataclass(frozen=True)
class TileType:
    """Three positive integers, m x n x k (or one per operand, see `labels`)."""

    labels: tuple[str, str, str] = ("m", "n", "k")
    most: int = 65536

    def read(self, name: str, value: object) -> Shape:
        parts = value
        if isinstance(value, str):
            texts = value.split("x")
            if not all(is_digits(text) for text in texts):
                raise InvalidValueError(f"{name} must look like 128x128x32, got {format_value(value)}")
            parts = [int(text) for text in texts]
        if isinstance(parts, Mapping):
            if set(parts) != set(self.labels):
                raise InvalidValueError(f"{name} needs exactly {', '.join(self.labels)}, got {format_value(value)}")
            parts = [parts[label] for label in self.labels]
        if not isinstance(parts, Sequence) or len(parts) != 3:
            raise InvalidValueError(f"{name} needs three numbers ({', '.join(self.labels)}), got {format_value(value)}")
        whole = [to_integer(part) for part in parts]
        if not all(part is not None and 1 <= part <= self.most for part in whole):
            raise InvalidValueError(f"{name} is {format_value(value)}: each must be an integer from 1 to {self.most}")
        return Shape(*(part for part in whole if part is not None))

    def to_token(self, value: Shape) -> str:
        return str(value)

    def to_json(self, value: Shape) -> list[int]:
        return list(value)

    def describe(self) -> str:
        return " x ".join(self.labels) + f", each 1 to {self.most}"


@dataclass(frozen=True)
class IntegerListType:
    """A list of positive integers. Its length is bounded here and depends on other fields."""

    fewest: int
    most: int

    def read(self, name: str, value: object) -> tuple[int, ...]:
        parts = value
        if isinstance(value, str):
            texts = value.split("x") if value != self.to_token(()) else []
            if not all(is_digits(text) for text in texts):
                raise InvalidValueError(f"{name} must look like 128x64x32, got {format_value(value)}")
            parts = [int(text) for text in texts]
        if not isinstance(parts, Sequence) or not self.fewest <= len(parts) <= self.most:
            raise InvalidValueError(f"{name} needs {self.fewest} to {self.most} numbers, got {format_value(value)}")
        whole = [to_integer(part) for part in parts]
        if not all(part is not None and 1 <= part <= TileType.most for part in whole):
            raise InvalidValueError(
                f"{name} is {format_value(value)}: each must be an integer from 1 to {TileType.most}"
            )
        return tuple(part for part in whole if part is not None)

    def to_token(self, value: tuple[int, ...]) -> str:
        return "x".join(str(part) for part in value) or "none"

    def to_json(self, value: tuple[int, ...]) -> list[int]:
        return list(value)

    def describe(self) -> str:
        return f"{self.fewest} to {self.most} numbers, each 1 to {TileType.most}"


@dataclass(frozen=True)
class OptionalTileType:
    """Three positive integers, or None (written `native`)."""

    tile: TileType
    nothing: str = "native"

    def read(self, name: str, value: object) -> Shape | None:
        return None if value in (None, self.nothing) else self.tile.read(name, value)

    def to_token(self, value: Shape | None) -> str:
        return self.nothing if value is None else self.tile.to_token(value)

    def to_json(self, value: Shape | None) -> list[int] | None:
        return None if value is None else list(value)

    def describe(self) -> str:
        return f"{self.nothing}, or {self.tile.describe()}"


@dataclass(frozen=True)
class Field:
    """One field of a config class: its type, its tag in names, and its meaning."""

    name: str
    kind: FieldType[Any]
    tag: str
    doc: str
    default: object
    newer: bool = False  # than kernels of its class: see `dump_identity`

    @property
    def required(self) -> bool:
        return self.default is MISSING

    def to_token(self, value: object) -> str | None:
        """The field's part of a name; None if the value is the default, which names leave out."""
        if not self.required and value == self.default:
            return None
        return self.tag + self.kind.to_token(value)


@overload
def config_field(kind: FieldType[V], doc: str, *, tag: str = "") -> V: ...


@overload
def config_field(kind: FieldType[V], doc: str, *, tag: str, default: V, newer: bool = False) -> V: ...


def config_field(kind: FieldType[V], doc: str, *, tag: str = "", default: Any = MISSING, newer: bool = False) -> Any:
    """Declare a field of a config class. A field with a default needs a tag that identifies it in names.

    A field that is `newer` than kernels of its class is left out of their digests if it has its default.
    """
    if default is not MISSING and not tag:
        raise ValueError("a field with a default is left out of names, so it needs a tag")
    if newer and default is MISSING:
        raise ValueError("a newer field needs a default, which is the value of the kernels before it")
    metadata = {"kind": kind, "doc": doc, "tag": tag, "newer": newer}
    return dataclasses.field(default=default, metadata=metadata)


_FIELDS: dict[type, Mapping[str, Field]] = {}


def list_fields(config_type: type) -> Mapping[str, Field]:
    """The fields of a config class, in declaration order."""
    found = _FIELDS.get(config_type)
    if found is None:
        found = _FIELDS[config_type] = {
            f.name: Field(
                f.name, f.metadata["kind"], f.metadata["tag"], f.metadata["doc"], f.default, f.metadata["newer"]
            )
            for f in dataclasses.fields(config_type)
        }
    return found


class ConfigBase:
    """Base of all config classes. Values are checked when a config is created."""

    def __post_init__(self) -> None:
        for name, field in list_fields(type(self)).items():
            object.__setattr__(self, name, field.kind.read(name, getattr(self, name)))


def read_config(config_type: type[C], values: Mapping[str, Any]) -> C:
    """A config from field names and values. Unknown and missing names are errors."""
    known = list_fields(config_type)
    for name in values:
        choose(f"field of {config_type.__module__.removesuffix('.config').rpartition('.')[2]}", name, known)
    missing = [name for name, field in known.items() if field.required and name not in values]
    if missing:
        raise InvalidValueError(f"these fields have no default and no value: {', '.join(missing)}")
    return config_type(**values)


def dump_config(config: ConfigBase) -> dict[str, Any]:
    """All fields of a config as JSON, defaults included."""
    return {n: f.kind.to_json(getattr(config, n)) for n, f in list_fields(type(config)).items()}


def dump_identity(config: ConfigBase) -> dict[str, Any]:
    """The fields that identify a config, as JSON: all but newer ones with their default.

    So a kernel that was declared before such a field has the same digest after it.
    """
    fields = list_fields(type(config))
    return {
        name: value
        for name, value in dump_config(config).items()
        if not (fields[name].newer and getattr(config, name) == fields[name].default)
    }


def format_tokens(config: ConfigBase) -> list[str]:
    """The parts of a kernel's name that its config determines: required fields in order, then the others."""
    tokens = (f.to_token(getattr(config, f.name)) for f in _order_for_names(type(config)))
    return [token for token in tokens if token is not None]


def _order_for_names(config_type: type) -> list[Field]:
    return sorted(list_fields(config_type).values(), key=lambda field: not field.required)


def read_tokens(config_type: type, tokens: Iterable[str]) -> dict[str, Any]:
    """The inverse of `format_tokens`. Raises `InvalidValueError` for a part that belongs to no field."""
    fields = _order_for_names(config_type)
    remaining = list(tokens)
    values: dict[str, Any] = {}
    for field in (f for f in fields if f.required):
        if not remaining:
            raise InvalidValueError(f"the name ends before its {field.name}")
        values[field.name] = read_token(field, remaining.pop(0))
    optional = [f for f in fields if not f.required]
    for token in remaining:
        # The longest tag wins, so that a tag may be a prefix of another.
        owners = [f for f in optional if token.startswith(f.tag) and f.name not in values]
        if not owners:
            raise UnknownValueError("part of a kernel name", token, (f.tag for f in optional))
        owner = max(owners, key=lambda f: len(f.tag))
        values[owner.name] = read_token(owner, token)
    return values


def read_token(field: Field, token: str) -> Any:
    """The value of a field from its part of a name. Raises `InvalidValueError` if it is not a part of this field."""
    if not token.startswith(field.tag):
        raise InvalidValueError(f"{field.name} must start with {field.tag!r} in a name, got {token!r}")
    text = token[len(field.tag) :]
    if isinstance(field.kind, FlagType):
        text = text or "true"
    return field.kind.read(field.name, text)
