"""Small CK trees that probes recognise, for tests that compile nothing."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.arch.ck_api import DEFAULT_GENERATION
from tilewright.ops import OPS


def write_ck_tree(include: Path, generation: str = DEFAULT_GENERATION) -> Path:
    """Write headers with the templates of a generation into an include folder, and return it."""
    texts: dict[str, str] = {}
    for probe in {probe.name: probe for op in OPS for probe in op.ck_probes}.values():
        form = next(form for form in probe.forms if form.name == probe.get_form(generation))
        parameters = ", ".join(f"typename {name}_" for name in form.parameters)
        declared = (
            f"template <{parameters}>\nstruct {probe.template}\n{{\n}};\n"
            if probe.template
            else re.sub(r"\\b|\^", "", form.text) + "\n"
        )
        texts[probe.header] = texts.get(probe.header, "") + declared
    for name, text in texts.items():
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text(text, encoding="utf-8")
    return include
