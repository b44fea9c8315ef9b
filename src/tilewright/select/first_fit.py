"""The selector that ignores speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.select.selection import Candidate, Ranking, SelectorStep

STEP = "first fit"


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Keeps the order of the candidates: unpadded first, then higher priority, then order of registration."""

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:  # noqa: ARG002
        return Ranking(candidates, (SelectorStep(STEP, "priority, then the order of registration"),))


FIRST_FIT = FirstFit()
