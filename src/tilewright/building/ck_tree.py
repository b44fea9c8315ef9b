"""Probe a CK tree: which forms of CK Tile's templates it has, and which ops can be compiled with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright.arch.ck_api import CkApi, CkForm, CkProbe, list_generations, make_api
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import CK_PATH
from tilewright.ops import list_ops

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class CkTree:
    """The result of probing a tree. `failures` maps an op to the reason why the tree cannot be used for it."""

    api: CkApi
    failures: Mapping[str, str]
    ops: frozenset[str]  # those with probes

    @property
    def is_unknown(self) -> bool:
        """Whether the tree cannot be used for any op that has probes."""
        return bool(self.ops) and self.failures.keys() >= self.ops

    def to_json(self) -> dict[str, Any]:
        """JSON for reports."""
        return {"generation": None if self.is_unknown else self.api.generation, "unusable": dict(self.failures)}


def find_used_api() -> CkApi | None:
    """The API of the CK headers in use; None if there are none."""
    from tilewright.building.ck_headers import find_ck  # noqa: PLC0415  (it probes the headers of a ROCm)

    try:
        include = find_ck()
    except ToolchainError:
        return None  # builds report the missing headers
    return probe_tree(include).api


def require_api(op: str, include: Path) -> CkApi:
    """The API of the CK headers in a folder. Raises `ToolchainError` if an op cannot be compiled with them."""
    tree = probe_tree(include)
    if op not in tree.failures:
        return tree.api
    known = ", ".join(list_generations(probe for each in list_ops() for probe in each.ck_probes))
    raise ToolchainError(
        f"{op} cannot be compiled with CK Tile's headers in {include}: {tree.failures[op]}. "
        f"Known generations of CK Tile: {known}. Set {CK_PATH.name} to a tree of one of these, or unset it and run: "
        "tilewright toolchain fetch-ck"
    )


def probe_tree(include: Path) -> CkTree:
    """Probe the headers in a folder with those probes that the installed ops declare."""
    probes = {probe.name: probe for op in list_ops() for probe in op.ck_probes}
    answers = {name: probe_header(probe, include) for name, probe in probes.items()}
    found = {name: answer.name for name, answer in answers.items() if isinstance(answer, CkForm)}
    failures = {}
    for op in list_ops():
        told = [answer for probe in op.ck_probes if isinstance(answer := answers[probe.name], str)]
        if told:
            more = f" ({len(told)} of its {len(op.ck_probes)} probes fail)" if len(told) > 1 else ""
            failures[op.name] = f"{told[0]}{more}"
    asked = frozenset(op.name for op in list_ops() if op.ck_probes)
    return CkTree(make_api(found, probes.values()), failures, asked)


def probe_header(probe: CkProbe, include: Path) -> CkForm | str:
    """The form that a tree has, or a sentence about an unknown one."""
    header = include / probe.header
    text = _read_code(header, header.stat().st_mtime_ns) if header.is_file() else ""
    if probe.template:
        return _probe_template(probe, text)
    for form in probe.forms:
        if form.text and re.search(form.text, text, re.MULTILINE):
            return form
    absent = [form for form in probe.forms if not form.text]
    if absent:
        return absent[0]
    return f"the probe {probe.name} failed: {probe.header} has none of the forms {_list_names(probe)}"


def _probe_template(probe: CkProbe, text: str) -> CkForm | str:
    found = read_template_parameters(text, probe.template)
    if found is None:
        return f"the probe {probe.name} failed: {probe.header} has no template {probe.template}"
    for form in probe.forms:
        if form.parameters == found:
            return form
    nearest = min(probe.forms, key=lambda form: len(set(form.parameters) ^ set(found)))
    more = [name for name in found if name not in nearest.parameters]
    less = [name for name in nearest.parameters if name not in found]
    differs = [f"has {', '.join(more)}"] * bool(more) + [f"lacks {', '.join(less)}"] * bool(less)
    return (
        f"the probe {probe.name} failed: {probe.template} in {probe.header} "
        f"{' and '.join(differs) or 'has its parameters in another order'}, compared with {nearest.generation}"
    )


def _list_names(probe: CkProbe) -> str:
    return ", ".join(form.name for form in probe.forms)


def read_template_parameters(text: str, template: str) -> tuple[str, ...] | None:
    """The names of a class template's parameters, without a trailing "_"; None if the text does not define it."""
    for match in re.finditer(rf"\b(?:struct|class)\s+{re.escape(template)}\s*(?=[:{{]|final\b)", text):
        begin = _find_parameters(text[: match.start()])
        if begin is not None:
            return tuple(_read_name(part) for part in _split(text[begin : match.start()].rstrip().removesuffix(">")))
    return None


def _find_parameters(before: str) -> int | None:
    """Where the parameters of a template begin whose declaration follows `before`."""
    end = before.rstrip()
    if not end.endswith(">"):
        return None
    depth = inside = 0  # of angle brackets, which are comparisons inside of round ones
    for place in range(len(end) - 1, -1, -1):
        inside += (end[place] == ")") - (end[place] == "(")
        if not inside:
            depth += (end[place] == ">") - (end[place] == "<")
        if depth == 0:
            return place + 1 if end[:place].rstrip().endswith("template") else None
    return None


def _split(parameters: str) -> list[str]:
    """Split a parameter list at the commas that are outside of brackets."""
    parts, depth, inside = [""], 0, 0
    for letter in parameters:
        inside += (letter in "({") - (letter in ")}")
        if not inside:
            depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == inside == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _read_name(parameter: str) -> str:
    declared = parameter.partition("=")[0].split()
    return declared[-1].lstrip(".").removesuffix("_") if declared else ""


@lru_cache(maxsize=256)
def _read_code(header: Path, _changed: int) -> str:
    """The text of a header without comments."""
    return _COMMENT.sub(" ", header.read_text(encoding="utf-8", errors="replace"))
