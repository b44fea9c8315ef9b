"""Write documents with a section for each op, and keep the sections of ops that were not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.ops import OPS

HEADING = "## "


def write_sections(path: Path, head: Sequence[str], sections: Mapping[str, Sequence[str]]) -> None:
    """Write these sections, by op name, to the document at `path`. The sections of other ops stay as they are."""
    known = {**_read_sections(path), **{name: "\n".join(lines).strip() for name, lines in sections.items()}}
    parts = [f"{HEADING}{op.name}\n\n{known[op.name]}" for op in OPS if op.name in known]
    path.write_text("\n\n".join(["\n".join(head), *parts]) + "\n", encoding="utf-8")


def _read_sections(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    _, *found = f"\n{path.read_text(encoding='utf-8')}".split(f"\n{HEADING}")
    named = (section.split("\n", 1) for section in found)
    return {name: text.strip() for name, text in named}
