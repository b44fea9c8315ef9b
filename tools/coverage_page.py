"""Make docs/coverage.md from docs/coverage.toml: what AMD's dispatcher has, and its state in Tilewright."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_text import format_code, format_table, wrap_paragraph

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "docs" / "coverage.toml"
PAGE = ROOT / "docs" / "coverage.md"
# The meaning of each verdict, in the order of the summary.
VERDICTS: Mapping[str, str] = {
    "yes": "the same is there, perhaps under another name",
    "better": "there, and it does more",
    "different": "left out or changed on purpose; the remark has the reason",
    "partial": "a part of it is there",
    "missing": "not there",
    "hardware": "needs a GPU or a larger machine; the remark has what stands in for it",
}
# Verdicts that need a remark.
EXPLAINED = ("different", "partial", "hardware")


@dataclass(frozen=True)
class Row:
    """One request. `page` describes it; `shown` is a test (`file::name`), a file, or a make target that shows it."""

    id: str
    asked: str
    verdict: str
    page: str
    shown: str = ""
    note: str = ""


def read_rows() -> tuple[dict[str, str], list[Row]]:
    """The titles of the parts by the letter of their rows, and the rows."""
    document = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return {part["id"]: part["title"] for part in document["part"]}, [Row(**row) for row in document["row"]]


def list_faults(rows: list[Row]) -> list[str]:
    """What is wrong with the rows: a file, test or target that does not exist, or a verdict without its evidence."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    twice = [f"{name}: there are {count} such rows" for name, count in Counter(r.id for r in rows).items() if count > 1]
    return [*twice, *(f"{row.id}: {fault}" for row in rows for fault in _list_row_faults(row, targets))]


def _list_row_faults(row: Row, targets: list[str]) -> list[str]:
    faults = []
    if row.verdict not in VERDICTS:
        faults.append(f"unknown verdict {row.verdict!r}")
    if not (ROOT / row.page).is_file():
        faults.append(f"{row.page} does not exist")
    if not row.note and row.verdict in EXPLAINED:
        faults.append(f"the verdict {row.verdict} needs a note")
    if row.shown.startswith("make "):
        known = row.shown.removeprefix("make ") in targets
        return faults if known else [*faults, f"the Makefile has no target of {row.shown!r}"]
    file, _, test = row.shown.partition("::")
    if not row.shown:
        needed = row.verdict != "missing" and row.page.startswith("docs/")
        return [*faults, "nothing shows it"] if needed else faults
    if not (ROOT / file).is_file():
        return [*faults, f"{file} does not exist"]
    if test and f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8"):
        faults.append(f"{file} has no {test}")
    return faults


def make_coverage_page() -> str:
    """The page, with the number of rows of each verdict at the top."""
    titles, rows = read_rows()
    counts = Counter(row.verdict for row in rows)
    summary = format_table(
        ("verdict", "rows", "meaning"),
        [(verdict, counts[verdict], meaning) for verdict, meaning in VERDICTS.items()],
        right=("rows",),
    )
    intro = wrap_paragraph(
        f"{len(rows)} capabilities, options, values and figures of AMD's dispatcher, as its pull requests, its "
        "generators' README, its wrapper script and its GPU tables name them, and their state in Tilewright. The last "
        "column has the test, make target or file that shows it. [Coming from CK's dispatcher](coming-from-ck.md) "
        "translates the names."
    )
    parts = (
        f"## {title}\n\n{_format_part([row for row in rows if row.id.startswith(letter)])}"
        for letter, title in titles.items()
    )
    note = "Written by `make docs` from coverage.toml. Do not edit it here."
    return "\n\n".join(["# Coverage of AMD's dispatcher", note, intro, summary, *parts]) + "\n"


def _format_part(rows: list[Row]) -> str:
    cells = [
        (r.id, _escape(r.asked), f"**{r.verdict}**", r.note, _format_page_link(r.page), format_code(r.shown))
        for r in rows
    ]
    return format_table(("", "AMD's dispatcher", "here", "remark", "page", "shown by"), cells)


def _escape(text: str) -> str:
    """A text in which Markdown sees no emphasis and no HTML."""
    return re.sub(r"([*_<])", r"\\\1", text.replace("`", ""))


def _format_page_link(page: str) -> str:
    inside = page.removeprefix("docs/")
    return f"[{Path(page).stem}]({inside if inside != page else f'../{page}'})"
