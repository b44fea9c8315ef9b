"""Records of Triton's own tests: their order, their file, and the tables that docs/triton.md shows."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PASSED, SKIPPED, FAILED, TIME = "passed", "skipped", "failed", "time"
OUTCOMES = {PASSED: "passed", SKIPPED: "skipped by Triton", FAILED: "failed", TIME: "exceeded the time"}


@dataclass(frozen=True, slots=True)
class Run:
    """What the outcome of a case depends on, besides Tilewright."""

    gpu: str
    mode: str
    triton: str  # version of the package
    tests: str  # commit of the tests


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome of one case. `error` is the first line of a failure or the reason of a skip."""

    run: Run
    case: str  # pytest's node id
    outcome: str
    cpu_s: float
    error: str = ""
    detail: str = ""

    def to_json(self) -> str:
        """Return a line of the records file."""
        return json.dumps({**asdict(self.run), **{key: value for key, value in asdict(self).items() if key != "run"}})


@dataclass(frozen=True, slots=True)
class Reason:
    """Why cases do not pass: those whose node id and error match the expressions."""

    case: str
    error: str
    text: str

    def explains(self, record: Record) -> bool:
        """Return whether a record is one of these cases."""
        said = f"{record.error}\n{record.detail}"
        return re.search(self.case, record.case) is not None and re.search(self.error, said) is not None


def read_records(file: Path) -> list[Record]:
    """Read the records, the newest of each case on each GPU. An incomplete last line is left out."""
    newest: dict[tuple[Run, str], Record] = {}
    text = file.read_text("utf-8") if file.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        given = json.loads(line)
        run = Run(*(given.pop(name) for name in ("gpu", "mode", "triton", "tests")))
        record = Record(run, **given)
        newest[run, record.case] = record
    return list(newest.values())


def cut_incomplete_line(file: Path) -> None:
    """Remove what a killed process wrote of a last line."""
    if file.exists() and not (data := file.read_bytes()).endswith(b"\n"):
        with file.open("r+b") as stream:
            stream.truncate(data.rfind(b"\n") + 1)


def read_reasons(file: Path) -> list[Reason]:
    """Read the reasons: tables `reason` with `case`, `error` and `text`, of which the first that matches counts."""
    given = tomllib.loads(file.read_text("utf-8"))
    return [Reason(each.get("case", ""), each.get("error", ""), each["text"]) for each in given["reason"]]


def order_cases(cases: Iterable[str], seed: int) -> list[str]:
    """Return the cases in an order that depends on the seed only: first one of each test function."""
    shuffled = sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case}".encode()).digest())
    first: dict[str, str] = {}
    for case in shuffled:
        first.setdefault(_find_function(case), case)
    chosen = set(first.values())
    return [*first.values(), *(case for case in shuffled if case not in chosen)]


def _find_function(case: str) -> str:
    return case.partition("[")[0]


def _name_file(case: str) -> str:
    return Path(case.partition("::")[0]).stem


def format_tables(records: Sequence[Record], reasons: Sequence[Reason]) -> str:
    """Return the outcomes by GPU and by file, every case that did not pass, and the reasons of skips."""
    gpus = list(dict.fromkeys(record.run.gpu for record in records))
    parts = [
        _format_outcomes(records, gpus),
        _format_files(records, gpus),
        _format_failures(records, reasons, gpus),
        _format_skips(records, gpus),
    ]
    return "\n\n".join(parts) + "\n"


def _format_rows(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    # A cell of Markdown has no bar.
    cells = ([str(cell).replace("|", "\\|") for cell in line] for line in (heads, *rows))
    first, *others = (f"| {' | '.join(line).lstrip()} |" for line in cells)
    return "\n".join((first, "|" + "---|" * len(heads), *others))


def _format_outcomes(records: Sequence[Record], gpus: Sequence[str]) -> str:
    counted = Counter((record.run.gpu, record.outcome) for record in records)
    hours: Counter[str] = Counter()
    for record in records:
        hours[record.run.gpu] += record.cpu_s / 3600  # type: ignore[assignment]  # a Counter adds floats, too
    rows: list[list[object]] = [["cases", *(sum(counted[gpu, name] for name in OUTCOMES) for gpu in gpus)]]
    rows += [[text, *(counted[gpu, name] for gpu in gpus)] for name, text in OUTCOMES.items()]
    rows.append(["CPU hours", *(f"{hours[gpu]:.2f}" for gpu in gpus)])
    return _format_rows(["", *gpus], rows)


def _format_files(records: Sequence[Record], gpus: Sequence[str]) -> str:
    counted = Counter((_name_file(record.case), record.run.gpu, record.outcome) for record in records)
    rows = []
    for file in dict.fromkeys(sorted(_name_file(record.case) for record in records)):
        cells = []
        for gpu in gpus:
            passed, skipped, failed, late = (counted[file, gpu, name] for name in OUTCOMES)
            cells.append(f"{passed} / {skipped} / {failed + late}")
        rows.append([f"`{file}`", *cells])
    return _format_rows(["passed / skipped / failed or exceeded the time", *gpus], rows)


def _format_failures(records: Iterable[Record], reasons: Sequence[Reason], gpus: Sequence[str]) -> str:
    """Return a line for each reason. Where none is given, the error stands for it."""

    def explain(record: Record) -> str:
        texts = (reason.text for reason in reasons if reason.explains(record))
        return next(texts, f"not settled: {record.error}")

    failed = [record for record in records if record.outcome in (FAILED, TIME)]
    return _format_groups("reason", failed, explain, gpus)


def _format_skips(records: Iterable[Record], gpus: Sequence[str]) -> str:
    skipped = [record for record in records if record.outcome == SKIPPED]
    return _format_groups("Triton's reason of a skip", skipped, lambda record: record.error, gpus)


def _format_groups(head: str, records: Iterable[Record], explain: Callable[[Record], str], gpus: Sequence[str]) -> str:
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[explain(record)].append(record)
    rows: list[list[object]] = []
    for text, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        counted = Counter(record.run.gpu for record in group)
        rows.append([_name_cases(group), *(counted[gpu] for gpu in gpus), text])
    return _format_rows(["cases", *gpus, head], rows)


def _name_cases(group: Sequence[Record]) -> str:
    """Name the test functions of a group, or its only case."""
    cases = {record.case.rpartition("::")[2] for record in group}
    if len(cases) == 1:
        return f"`{cases.pop()}`"
    functions: Mapping[str, int] = Counter(_find_function(case) for case in cases)
    return ", ".join(f"`{name}`" + (f" ({number})" if number > 1 else "") for name, number in sorted(functions.items()))
