"""Write documents with a section for each op, and keep the sections of ops that were not run.

Results with other CK headers than the fetched ones are in a section of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.arch.ck_api import DEFAULT_GENERATION
from tilewright.ops import OPS

HEADING = "## "


def name_section(op: str, generation: str = DEFAULT_GENERATION) -> str:
    """Name the section of an op for a generation of CK headers."""
    return op if generation == DEFAULT_GENERATION else f"{op} with CK Tile {generation}"


def write_sections(path: Path, head: Sequence[str], sections: Mapping[str, Sequence[str]]) -> None:
    """Write these sections, by `name_section`, to the document at `path`. The other sections stay as they are."""
    known = {**read_sections(path), **{name: "\n".join(lines).strip() for name, lines in sections.items()}}
    order = [name for op in OPS for name in sorted(known) if name == op.name or name.startswith(f"{op.name} with ")]
    parts = [f"{HEADING}{name}\n\n{known[name]}" for name in order]
    path.write_text("\n\n".join(["\n".join(head), *parts]) + "\n", encoding="utf-8")


def read_sections(path: Path) -> dict[str, str]:
    """Read the sections of a document, by name. A document that does not exist has none."""
    if not path.exists():
        return {}
    _, *found = f"\n{path.read_text(encoding='utf-8')}".split(f"\n{HEADING}")
    named = (section.split("\n", 1) for section in found)
    return {name: text.strip() for name, text in named}
