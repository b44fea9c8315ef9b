"""How a C program gets the numbers of a problem: what an op gives so that packs rank kernels without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CNumbers:
    """An op's `problem_numbers` in C.

    A C program has an op's struct of arguments and kernels to choose from. The struct tells sizes; types, and what else
    a kernel was compiled for, only the kernels know. `kind` gives these facts of a config by name. `header` is plain C
    for an op xyz with

        typedef struct tw_xyz_kind { double … } tw_xyz_kind;        the facts that `kind` gives
        typedef struct tw_xyz_numbers { double … } tw_xyz_numbers;  the numbers that `problem_numbers` gives
        static tw_xyz_numbers tw_xyz_numbers_of(const tw_xyz_args*, const tw_xyz_kind*);

    The members of both structs come in the order of their names in Python. `members` tells which whole numbers of a
    problem the arguments have: field of the problem → member of tw_xyz_args. Where that is an array, `length` is the
    member that says how many of its elements count.
    """

    header: Path
    kind: Callable[[Any], Mapping[str, float]]
    members: Mapping[str, str]
    length: str = ""

    def condition(self, field: str, value: Any) -> str | None:
        """C that is true where a field of the problem has a value; None where the arguments cannot tell."""
        member = self.members.get(field)
        if member is None:
            return None
        if isinstance(value, tuple):
            parts = [f"args->{self.length} == {len(value)}"]
            parts += [f"args->{member}[{place}] == {int(each)}" for place, each in enumerate(value)]
            return " && ".join(parts)
        return f"args->{member} == {int(value)}"
