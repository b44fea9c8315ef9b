"""Nonsense for each argument of a function: every exception must be one of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.base.errors import TilewrightError

NONSENSE: tuple[Any, ...] = (
    *([], [1], [[1], [2]], {}, {"a": 1}, set(), (), (1, 2), "", "nonsense", "x\0y", b"bytes", None, True),
    *(math.nan, math.inf, -1, 0, 1.5, 1j, 10**30, object(), float),
)


def list_foreign_errors(function: Callable[..., Any], right: Mapping[str, Any], arguments: Iterable[str]) -> list[str]:
    """Replace each argument in turn, and list the errors that are not ours."""
    foreign = []
    for argument in arguments:
        for value in NONSENSE:
            try:
                function(**{**right, argument: value})
            except TilewrightError as error:
                assert str(error)
            except Exception as error:
                foreign.append(f"{argument}={value!r}: {type(error).__name__}: {error}")
    return foreign
