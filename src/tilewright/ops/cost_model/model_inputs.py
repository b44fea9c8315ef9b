"""The model inputs of a problem for C programs, so that packs rank kernels without Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ops.call_struct import CallStruct, Member


@dataclass(frozen=True)
class CModelInputs:
    """How an op's `problem_numbers` is translated to C.

    A C program has an op's struct of arguments and kernels to choose from. A problem's fields are members of the
    struct; those that it does not have, such as types, are known to the kernel: its config has them. `problem_numbers`
    is called with expressions for the members (`traced_problem`), so it uses only `arithmetic` with them. `length` is
    the member with the number of used elements of arrays; the config has it, too. `replaced` are fields with another
    value than in Python.
    """

    call: CallStruct
    length: str = ""
    replaced: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def members(self) -> Mapping[str, Member]:
        """The members of the struct that hold a field of the problem, by the field."""
        return {member.value: member for member in self.call.members if isinstance(member.value, str)}

    def has_member(self, name: str) -> bool:
        """Whether the arguments contain a field of the problem as an integer, or as a name's number."""
        return name in self.members and self.members[name].c_type != "double"

    def format_condition(self, name: str, value: int | str | tuple[int, ...]) -> str:
        """A C condition that is true if a field of the problem, which has a member, has a value."""
        member = self.members[name].name
        if isinstance(value, tuple):
            parts = [f"args->{self.length} == {len(value)}"]
            parts += [f"args->{member}[{place}] == {int(each)}" for place, each in enumerate(value)]
            return " && ".join(parts)
        number = self.call.list_names(name).index(value) if isinstance(value, str) else int(value)
        return f"args->{member} == {number}"
