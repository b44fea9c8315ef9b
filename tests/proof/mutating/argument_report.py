"""The outcomes of changed arguments as Markdown: a section of docs/mutations.md with rows for each kind of kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from tests.proof.mutating.arguments import Argument, ArgumentChange
from tests.proof.mutating.judge import MISSED, NOTICED, Outcome
from tests.proof.mutating.report import ARGUMENTS

GOAL = 0.995  # the share of changes with an effect that `verify` must notice
_INTRODUCTION = """
Written by `tests/proof/arguments.py`. We change one argument of a kernel's calls at a time, on its way to the compiled
kernel, and judge the call by `verify`, on the op's own trials, in strict mode: the argument is swapped with its
neighbour of the same type, one larger, one smaller, 0, the default of the problem's field, or the value of another
trial. Arguments are numbers and addresses of the kernel's C struct. The kernels are in CI's list: of each kind, those
with most features.

An argument is **not read** if all trials have the same bits with garbage in all such arguments at once. Changes of
these alone are not counted. A change that all trials pass runs on 24 larger problems: if one of them is wrong, it was
**missed**; else it has no effect, for the reason below. The score is noticed / (noticed + missed).
"""
# Headings and columns of the tables. The first cell of every row is the kind.
_TABLES = (
    ("", "| kind | kernels | arguments | not read | changes | noticed | without effect | missed | score | date |"),
    ("### Changes without effect, and missed ones", "| kind | change | why, or where it shows |"),
    ("### Arguments that are not read", "| kind | by none of its kernels | by some of them |"),
)


@dataclass
class KindReport:
    """The outcomes of changed arguments of a kind's kernels. Numbers are of all kernels together."""

    kind: str
    kernels: int = 0
    arguments: int = 0
    unread: Counter[str] = field(default_factory=Counter)  # kernels that do not read an argument
    verdicts: Counter[str] = field(default_factory=Counter)
    survivors: dict[str, str] = field(default_factory=dict)  # why, or where it shows

    def add_kernel(self, arguments: int, unread: Sequence[Argument]) -> None:
        self.kernels += 1
        self.arguments += arguments
        self.unread.update(argument.name for argument in unread)

    def add_outcome(self, change: ArgumentChange, outcome: Outcome, reason: str) -> None:
        self.verdicts[outcome.verdict] += 1
        if outcome.verdict != NOTICED:
            self.survivors[str(change)] = f"missed: {outcome.how}" if outcome.verdict == MISSED else reason

    @property
    def score(self) -> float:
        noticed, missed = self.verdicts[NOTICED], self.verdicts[MISSED]
        return noticed / (noticed + missed) if noticed + missed else 1.0

    def format_row(self, today: date) -> str:
        total, noticed, missed = self.verdicts.total(), self.verdicts[NOTICED], self.verdicts[MISSED]
        counts = (self.kernels, self.arguments, self.unread.total(), total, noticed, total - noticed - missed, missed)
        return _format_cells(f"`{self.kind}`", *counts, f"{100 * self.score:.1f} %", today.isoformat())

    def format_survivors(self) -> list[str]:
        return [_format_cells(f"`{self.kind}`", change, why) for change, why in self.survivors.items()]

    def format_unread(self) -> list[str]:
        every = [name for name, count in self.unread.items() if count == self.kernels]
        some = [name for name, count in self.unread.items() if count < self.kernels]
        return [_format_cells(f"`{self.kind}`", _join_names(every), _join_names(some))]


def _format_cells(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _join_names(names: Iterable[str]) -> str:
    """The names, those of one member together: `q.batch`, `q.part` become `q: batch, part`."""
    members: dict[str, list[str]] = {}
    for name in names:
        member, _, rest = name.partition("." if "." in name else "[")
        members.setdefault(member, []).append(rest.removesuffix("]"))
    return "; ".join(member if rest == [""] else f"{member}: {', '.join(rest)}" for member, rest in members.items())


def write_report(path: Path, reports: Sequence[KindReport], today: date) -> None:
    """Write the rows of these kinds to the document at `path`. All else stays as it is."""
    before, _, section = path.read_text(encoding="utf-8").partition(ARGUMENTS)
    known = [_read_rows(section, columns) for _, columns in _TABLES]
    for report in reports:
        made = ([report.format_row(today)], report.format_survivors(), report.format_unread())
        for rows, lines in zip(known, made, strict=True):
            rows[report.kind] = lines
    parts = [_INTRODUCTION.strip()]
    for (heading, columns), rows in zip(_TABLES, known, strict=True):
        lines = [line for kind in sorted(rows) for line in rows[kind]]
        parts += [*filter(None, [heading]), "\n".join([columns, "|---" * (columns.count("|") - 1) + "|", *lines])]
    path.write_text(before.rstrip() + "\n\n" + ARGUMENTS.lstrip() + "\n" + "\n\n".join(parts) + "\n", encoding="utf-8")


def read_report(path: Path) -> tuple[dict[str, list[str]], dict[str, list[list[str]]]]:
    """The cells of each kind's row, and of the rows of its changes without effect."""
    _, _, section = path.read_text(encoding="utf-8").partition(ARGUMENTS)
    rows, survivors = (_read_rows(section, columns) for _, columns in _TABLES[:2])
    return (
        {kind: _split_cells(line) for kind, [line] in rows.items()},
        {kind: [_split_cells(line) for line in lines] for kind, lines in survivors.items()},
    )


def _split_cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("| ").split(" | ")]


def _read_rows(section: str, columns: str) -> dict[str, list[str]]:
    """The rows of the table with these columns, by kind."""
    found: dict[str, list[str]] = {}
    for line in _iterate_lines(section, columns):
        found.setdefault(line.split("`")[1], []).append(line)
    return found


def _iterate_lines(section: str, columns: str) -> Iterator[str]:
    _, _, behind = section.partition(columns)
    for line in behind.splitlines()[2:]:
        if not line.startswith("| `"):
            return
        yield line
