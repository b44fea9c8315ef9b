"""Render build.ninja."""

from __future__ import annotations

from tilewright.codegen.build_files.recipe import OBJECT_LIST, BuildStep, LibraryTarget, Slot
from tilewright.codegen.build_files.template import escape_dollars, fill_template, format_shell_command

FILE = "build.ninja"
SLOTS = {
    Slot.SOURCE: "$in",
    Slot.PRODUCT: "$out",
    Slot.DEPFILE: "$out.d",
    Slot.UNIT: "-cuid=$kernel",
    Slot.OBJECTS: f"@{OBJECT_LIST}",
}


def render(library: LibraryTarget) -> str:
    """Render the text of build.ninja."""
    return fill_template(
        "build.ninja.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=escape_dollars(_format_default(library.recipe.compiler)),
        command=lambda step: format_shell_command(step.words, SLOTS),
        link=format_shell_command(library.link_words, SLOTS),
        edge=_format_edge,
        object_list=OBJECT_LIST,
    )


def _format_edge(step: BuildStep, kernel: str) -> str:
    needed = " ".join(["", "|", *step.embedded_products(kernel)]) if step.embeds else ""
    return f"build {step.product_path(kernel)}: {step.name} {kernel}{step.source}{needed}"


def _format_default(path: str) -> str:
    r"""Format a path as the default in `"${VARIABLE:-…}"`, where these characters need a backslash."""
    return "".join(f"\\{c}" if c in '\\"$`}' else c for c in path)
