"""The C struct of an op's problems, tw_<op>_problem, from the declared fields of its problem class.

All members have 8 bytes, so that equal problems have equal bytes. A name is its place among the field's names, from 1;
0 is none. Extents have a count and one number per dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.digest import digest_text
from tilewright.base.errors import InvalidValueError
from tilewright.ops.fields import ChoiceType, FlagType
from tilewright.ops.in_c.trace import INTEGER, REAL, TRUTH, TracedRun, UntraceableError
from tilewright.ops.in_c.traced import Name, add_integer, add_variable
from tilewright.ops.problem_field import (
    ExtentsType,
    IntegerType,
    NumberType,
    ProblemField,
    get_op_name,
    list_declared_fields,
)
from tilewright.ops.problem_values import MOST

# TW_MAX_EXTENTS of pack.h.
MAX_EXTENTS = 4
EXTENTS = "tw_extents"


@dataclass(frozen=True)
class ProblemMember:
    """A member of the struct: a declared field of the problem class."""

    field: ProblemField

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def names(self) -> tuple[str, ...]:
        """The values of a field that takes names; empty for others."""
        return self.field.kind.values if isinstance(self.field.kind, ChoiceType) else ()

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """The names that a problem may have before it is completed: also those that stand for others."""
        return (*self.names, *self.field.resolves)

    @property
    def is_flag(self) -> bool:
        return isinstance(self.field.kind, FlagType)

    @property
    def is_extents(self) -> bool:
        return isinstance(self.field.kind, ExtentsType)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value of an integer."""
        kind = self.field.kind
        return (kind.least, kind.most) if isinstance(kind, IntegerType) else (0, 1)

    @property
    def c_type(self) -> str:
        kind = self.field.kind
        if isinstance(kind, NumberType):
            return "double"
        if self.is_extents:
            return EXTENTS
        return "uint64_t" if isinstance(kind, IntegerType) and kind.most > MOST else "int64_t"

    @property
    def default(self) -> float | int | tuple[int, ...]:
        """The value in a new struct: the default, or 0 for a field that must be set."""
        value: Any = self.field.default
        if self.is_extents:
            return () if self.field.required else tuple(value)
        if self.names:
            return self.names.index(value) + 1 if value in self.names else 0
        return 0 if self.field.required else value


@dataclass(frozen=True)
class ProblemStruct:
    """The struct of a problem class."""

    problem_type: type

    @functools.cached_property
    def op(self) -> str:
        return get_op_name(self.problem_type)

    @property
    def name(self) -> str:
        return f"tw_{self.op}_problem"

    @functools.cached_property
    def members(self) -> Mapping[str, ProblemMember]:
        fields = list_declared_fields(self.problem_type)
        made = {name: ProblemMember(field) for name, field in fields.items() if not field.shorthand}
        known = (ChoiceType, FlagType, ExtentsType, IntegerType, NumberType)
        for member in made.values():
            if not isinstance(member.field.kind, known):
                raise InvalidValueError(
                    f"{member.name} of {self.op} problems cannot be in a C struct: its type is "
                    f"{type(member.field.kind).__name__}"
                )
        return made

    @functools.cached_property
    def shorthands(self) -> tuple[ProblemField, ...]:
        return tuple(field for field in list_declared_fields(self.problem_type).values() if field.shorthand)

    @functools.cached_property
    def digest(self) -> str:
        """Of the declaration: programs and libraries with equal digests have the same struct."""
        rows = [
            f"{each.name} {each.c_type} {each.accepted_names} {each.default} {each.bounds}"
            for each in self.members.values()
        ]
        return digest_text("\n".join(rows))[:16]

    @functools.cached_property
    def tables(self) -> Mapping[tuple[str, ...], str]:
        """The C arrays with the names of fields, by the names."""
        found: dict[tuple[str, ...], str] = {}
        for member in self.members.values():
            if member.names:
                found.setdefault(member.names, f"names_{member.name}")
        return found


class StructProblem:
    """A problem whose fields are members of the struct that `p` points to, as traced values.

    Properties and methods are those of the problem class. All extents of a completed problem have the same count.
    """

    def __init__(self, struct: ProblemStruct, trace: TracedRun) -> None:
        self._struct = struct
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._find(name)
        self.__dict__[name] = found
        return found

    def make_other(self, **values: object) -> StageProblem:
        """A problem of the same class with these fields, and the defaults of the others."""
        return StageProblem(values)

    def _find(self, name: str) -> Any:
        member = self._struct.members.get(name)
        if member is not None:
            return self._trace_member(member)
        owner = self._struct.problem_type
        if not hasattr(owner, name):
            raise UntraceableError(f"problems of {self._struct.op} have no {name}")
        attribute = vars(owner)[name]
        # A cached property would need its name to be set; its function does not.
        compute: Callable[[Any], Any] | None = getattr(attribute, "func", None) or getattr(attribute, "fget", None)
        return compute(self) if compute is not None else attribute.__get__(self)

    def _trace_member(self, member: ProblemMember) -> Any:
        trace, text = self._trace, f"p->{member.name}"
        if member.is_extents:
            return self._trace_extents(text)
        if member.names:
            variable = add_variable(trace, text, INTEGER)
            known = trace.find_fact(text)
            return member.names[known - 1] if known else Name.create(trace, variable.node, member.names)
        if member.c_type == "double":
            return add_variable(trace, text, REAL)
        if member.is_flag:
            known = trace.find_fact(text)
            return add_variable(trace, text, TRUTH) if known is None else bool(known)
        least, most = member.bounds
        return add_integer(trace, text, least, most)

    def _trace_extents(self, text: str) -> tuple[Any, ...]:
        first = next(member.name for member in self._struct.members.values() if member.is_extents)
        count = add_variable(self._trace, f"p->{first}.count", INTEGER)
        length = self._trace.choose_value(count.node, range(1, MAX_EXTENTS + 1))
        return tuple(add_variable(self._trace, f"{text}.values[{i}]", INTEGER) for i in range(length))


@dataclass(frozen=True)
class StageProblem:
    """The problem of a stage: the fields that are given."""

    values: Mapping[str, object]
