"""Render build.ninja."""

from __future__ import annotations

from tilewright.codegen.build_files.recipe import OBJECT_LIST, Library, Slot, Step
from tilewright.codegen.build_files.template import escape, fill, shell_command

FILE = "build.ninja"
SLOTS = {
    Slot.SOURCE: "$in",
    Slot.PRODUCT: "$out",
    Slot.DEPFILE: "$out.d",
    Slot.UNIT: "-cuid=$kernel",
    Slot.OBJECTS: f"@{OBJECT_LIST}",
}


def render(library: Library) -> str:
    """Render the text of build.ninja."""
    return fill(
        "build.ninja.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=escape(_default_word(library.recipe.compiler)),
        command=lambda step: shell_command(step.words, SLOTS),
        link=shell_command(library.link_words, SLOTS),
        edge=_edge,
        object_list=OBJECT_LIST,
    )


def _edge(step: Step, kernel: str) -> str:
    needed = " ".join(["", "|", *step.needed_for(kernel)]) if step.embeds else ""
    return f"build {step.product_of(kernel)}: {step.name} {kernel}{step.source}{needed}"


def _default_word(path: str) -> str:
    r"""Format a path as the default in `"${VARIABLE:-…}"`, where these characters need a backslash."""
    return "".join(f"\\{c}" if c in '\\"$`}' else c for c in path)
