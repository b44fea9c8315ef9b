"""The model inputs of a problem for C programs, so that packs rank kernels without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CModelInputs:
    """An op's `problem_numbers` in C.

    A C program has an op's struct of arguments and kernels to choose from. The struct contains sizes; types and other
    compile-time values are known to the kernels only. `kind` returns these values of a config by name. `header` is
    plain C for an op xyz with

        typedef struct tw_xyz_kind { double … } tw_xyz_kind;        the values that `kind` returns
        typedef struct tw_xyz_numbers { double … } tw_xyz_numbers;  the model inputs that `problem_numbers` returns
        static tw_xyz_numbers tw_xyz_numbers_of(const tw_xyz_args*, const tw_xyz_kind*);

    The members of both structs are in the order of their names in Python. `members` lists the integers of a problem
    that the arguments contain: field of the problem → member of tw_xyz_args. If that is an array, `length` is the
    member with the number of its used elements.
    """

    header: Path
    kind: Callable[[Any], Mapping[str, float]]
    members: Mapping[str, str]
    length: str = ""

    def format_condition(self, field: str, value: int | tuple[int, ...]) -> str | None:
        """A C condition that is true if a field of the problem has a value; None if the arguments do not contain it."""
        member = self.members.get(field)
        if member is None:
            return None
        if isinstance(value, tuple):
            parts = [f"args->{self.length} == {len(value)}"]
            parts += [f"args->{member}[{place}] == {int(each)}" for place, each in enumerate(value)]
            return " && ".join(parts)
        return f"args->{member} == {int(value)}"
