"""Render a Makefile for GNU make."""

from __future__ import annotations

import shlex

from tilewright.codegen.build_files.recipe import OBJECT_LIST, PRODUCTS, RECIPE, BuildStep, LibraryTarget, Slot
from tilewright.codegen.build_files.template import escape_dollars, fill_template, format_shell_command

FILE = "Makefile"
SLOTS = {
    Slot.SOURCE: "$<",
    Slot.PRODUCT: "$@",
    Slot.DEPFILE: "$@.d",
    Slot.UNIT: "-cuid=$*",
    Slot.OBJECTS: f"@{OBJECT_LIST}",
}


def render(library: LibraryTarget) -> str:
    """Render the text of the Makefile."""
    return fill_template(
        "Makefile.j2",
        library=library,
        steps=library.recipe.steps,
        # In the value of a variable, unlike in a recipe, # would start a comment.
        compiler=escape_dollars(shlex.quote(library.recipe.compiler)).replace("#", "\\#"),
        command=lambda step: format_shell_command(step.words, SLOTS),
        link=format_shell_command(library.link_words, SLOTS),
        prerequisites=_format_prerequisites,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _format_prerequisites(step: BuildStep) -> str:
    return " ".join([f"%{step.source}", *(f"{PRODUCTS}/%{need}" for need in step.needs), RECIPE])
