"""Declared fields of problems: the values that a field takes, its meaning, and the value that its default stands for.

A problem class derives from `ProblemBase`, and its fields are declared with `problem_field`. Checks, the reference, the
help of `--problem` and `tilewright problems OP` read them from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar, dataclass_transform, overload

from tilewright.base.document_values import expect_number
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops.problem_values import MOST, Extents, check_count, format_problem_value, read_extents

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class ValueType(Protocol[V_co]):
    """How the values of a field are read and checked. `ChoiceType` and `FlagType` of configs are such types, too."""

    def read(self, name: str, value: object) -> V_co:
        """The value of field `name`, as Python, JSON or a command line give it. Raises `InvalidValueError`."""

    def describe(self) -> str:
        """The accepted values, for documentation."""


@dataclass(frozen=True)
class IntegerType:
    """An integer within bounds."""

    least: int = 1
    most: int = MOST

    def read(self, name: str, value: object) -> int:
        return check_count(name, value, self.least, self.most)

    def describe(self) -> str:
        return f"integer, at least {self.least}" if self.most == MOST else f"integer, {self.least} to {self.most}"


@dataclass(frozen=True)
class NumberType:
    """A finite number, with bounds or without."""

    least: float | None = None
    below: float | None = None

    def read(self, name: str, value: object) -> float:
        found = expect_number(name, value)
        if (self.least is not None and found < self.least) or (self.below is not None and found >= self.below):
            raise InvalidValueError(f"{name} is {found}, must be {self._describe_bounds()}")
        return found

    def _describe_bounds(self) -> str:
        bounds = {"at least": self.least, "below": self.below}
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)

    def describe(self) -> str:
        return ", ".join(filter(None, ("number", self._describe_bounds())))


@dataclass(frozen=True)
class ExtentsType:
    """One integer per dimension: (28, 28), [28, 28], "28x28", or a single integer."""

    least: int = 1

    def read(self, name: str, value: object) -> Extents:
        return read_extents(name, value, self.least)

    def describe(self) -> str:
        return f"28x28 or one integer, each at least {self.least}"


@dataclass(frozen=True)
class AnyType:
    """Values that the problem itself reads: those of shorthands."""

    text: str

    def read(self, name: str, value: object) -> Any:  # noqa: ARG002  (as all types)
        return value

    def describe(self) -> str:
        return self.text


@dataclass(frozen=True)
class Derived:
    """The value that a default stands for, computed from the fields declared before.

    Without `compute`, the problem's `__post_init__` sets the field from a shorthand.
    """

    text: str
    compute: Callable[[Any], object] | None = None


@dataclass(frozen=True)
class ProblemField:
    """One field of a problem class. A shorthand sets other fields and is not a field of the created problem."""

    name: str
    kind: ValueType[Any]
    doc: str
    default: object
    stands_for: Derived | None
    shorthand: bool
    newer: bool = False  # than files of problems: see `dump_problem`
    # Names that stand for one of the field's names, which follows from other fields.
    resolves: Mapping[str, Callable[[Any], str]] = dataclasses.field(default_factory=dict)
    # Of a shorthand: the fields that get its value, or for each name that it takes, fields and their values.
    copies: tuple[str, ...] = ()
    expands: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def required(self) -> bool:
        return self.default is MISSING

    def describe_default(self) -> str:
        """The default as on a command line, with the value that it stands for; empty for a required field."""
        if self.required or self.default is None:
            return ""
        stands_for = "" if self.stands_for is None else self.stands_for.text
        return ": ".join(filter(None, (format_problem_value(self.default), stands_for)))


@overload
def problem_field(kind: ValueType[V], doc: str) -> V: ...


@overload
def problem_field(
    kind: ValueType[V],
    doc: str,
    *,
    default: V,
    stands_for: str | Derived | None = None,
    newer: bool = False,
    resolves: Mapping[str, Callable[[Any], str]] = ...,
) -> V: ...


def problem_field(
    kind: ValueType[V],
    doc: str,
    *,
    default: Any = MISSING,
    stands_for: str | Derived | None = None,
    newer: bool = False,
    resolves: Mapping[str, Callable[[Any], str]] = MappingProxyType({}),
) -> Any:
    """Declare a field of a problem class.

    A default may stand for another value: that of the field `stands_for`, declared before, or a derived one. The type
    must accept such a default. A field that is `newer` than files of problems is left out of them if it has its
    default. `resolves` has other names that a caller may give, and the functions that find the field's own name for
    them from fields declared before.
    """
    if isinstance(stands_for, str):
        stands_for = Derived(f"the same as {stands_for}", _get_field(stands_for))
    metadata = {"kind": kind, "doc": doc, "stands_for": stands_for, "shorthand": False, "newer": newer}
    metadata["resolves"] = resolves
    return dataclasses.field(default=default, metadata=metadata)


def _get_field(name: str) -> Callable[[Any], object]:
    return lambda problem: getattr(problem, name)


def problem_shorthand(
    takes: str,
    doc: str,
    *,
    default: None,
    copies: tuple[str, ...] = (),
    expands: Mapping[str, Mapping[str, str]] | None = None,
) -> Any:
    """Declare an `InitVar` of a problem class: one value for several fields, read by the class's `__post_init__`.

    C++ programs have it, too, if the fields are declared: `copies` are those that get the value itself, `expands` has
    the values of fields for each name.
    """
    metadata = {"kind": AnyType(takes), "doc": doc, "stands_for": None, "shorthand": True}
    metadata |= {"copies": copies, "expands": expands or {}}
    return dataclasses.field(default=default, metadata=metadata)


def list_declared_fields(problem_type: type) -> Mapping[str, ProblemField]:
    """The declared fields and shorthands of a problem class, in order. Empty for a class without declarations."""
    declared: Mapping[str, ProblemField] = getattr(problem_type, "_declared", {})
    return declared


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(problem_field, problem_shorthand))
class ProblemBase:
    """Base of problem classes. A derived class is a frozen dataclass, without a decorator.

    Values are checked when a problem is created, in the order of the fields. Checks of several fields belong into
    `check_values`. A class with shorthands defines `__post_init__`, which sets the fields that they stand for and then
    calls the one here.
    """

    _declared: Mapping[str, ProblemField]
    _steps: tuple[tuple[str, Callable[[str, object], Any], object, Callable[[Any], object] | None], ...]
    _resolved: Mapping[tuple[str, str], Callable[[Any], str]]  # by field and name

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        # `dataclasses.fields` would leave out shorthands.
        fields: Mapping[str, dataclasses.Field[Any]] = cls.__dict__["__dataclass_fields__"]
        cls._declared = {name: ProblemField(name, default=f.default, **f.metadata) for name, f in fields.items()}
        cls._steps = tuple(
            (name, f.kind.read, f.default, None if f.stands_for is None else f.stands_for.compute)
            for name, f in cls._declared.items()
            if not f.shorthand
        )
        cls._resolved = {(f.name, given): find for f in cls._declared.values() for given, find in f.resolves.items()}

    def __new__(cls, *_: object, **given: object) -> Self:
        # Python's own error for a misspelt field does not name the nearest one.
        if not given.keys() <= cls._declared.keys():
            name = next(name for name in given if name not in cls._declared)
            raise UnknownValueError(f"field of a {get_op_name(cls)} problem", name, cls._declared)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        values = self.__dict__
        for (name, given), find in self._resolved.items():
            if isinstance(values[name], str) and values[name] == given:
                values[name] = find(self)
        for name, read, default, derive in self._steps:
            value = read(name, values[name])
            if derive is not None and value == default:
                value = derive(self)
            values[name] = value
        self.check_values()

    def check_values(self) -> None:
        """Check fields that depend on each other. Raises `InvalidValueError`."""

    def make_other(self, **values: Any) -> Self:
        """A problem of the same class with these fields, and the defaults of the others."""
        return type(self)(**values)


def get_op_name(problem_type: type) -> str:
    """The op of a problem class: the package that defines it. Packages outside of Tilewright are tilewright_<op>."""
    return problem_type.__module__.removesuffix(".problem").rpartition(".")[2].removeprefix("tilewright_")
