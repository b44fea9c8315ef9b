"""Documents with a section for each op: a tool writes those of the ops that it ran for and keeps the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.ops import OPS

HEADING = "## "


def write_sections(path: Path, head: Sequence[str], sections: Mapping[str, Sequence[str]]) -> None:
    """The document at `path`, with these sections by the name of the op; those of other ops stay as they are."""
    known = {**_sections(path), **{name: "\n".join(lines).strip() for name, lines in sections.items()}}
    parts = [f"{HEADING}{op.name}\n\n{known[op.name]}" for op in OPS if op.name in known]
    path.write_text("\n\n".join(["\n".join(head), *parts]) + "\n", encoding="utf-8")


def _sections(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    _, *found = f"\n{path.read_text(encoding='utf-8')}".split(f"\n{HEADING}")
    named = (section.split("\n", 1) for section in found)
    return {name: text.strip() for name, text in named}
