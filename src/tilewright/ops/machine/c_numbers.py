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
    """

    header: Path
    kind: Callable[[Any], Mapping[str, float]]
