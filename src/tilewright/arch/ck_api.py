"""Generations of CK Tile: the forms of its templates that our sources depend on, and how to recognise them.

CK Tile has no version of its API, so its headers are probed: an op declares the templates that it uses in a form that
has changed, with the parameters of each known form. The forms of a tree are a value, `CkApi`, which is part of a GPU's
description (`Arch.ck`), of rendered sources and of build keys.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import knobs

# The generation of the headers that `tilewright toolchain fetch-ck` downloads. A generation is named after its month.
DEFAULT_GENERATION = "2025-11"


@dataclass(frozen=True, slots=True)
class CkForm:
    """One form that a probe can find, and the first generation that has it.

    With `parameters`, the probe's template has exactly these, without a trailing "_". Otherwise the header has a line
    that the regular expression `text` matches; an empty one stands for the absence of all other forms.
    """

    name: str
    generation: str
    parameters: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class CkProbe:
    """A question to a CK tree. `forms` are the known answers, those of earlier generations first."""

    name: str
    header: str  # below the include folder
    forms: tuple[CkForm, ...]
    template: str = ""

    def get_form(self, generation: str) -> str:
        """The form in a generation."""
        return [form.name for form in self.forms if form.generation <= generation][-1]


@dataclass(frozen=True, slots=True)
class CkApi:
    """The API of a CK tree: the forms that differ from the default generation, by the name of the probe."""

    generation: str = DEFAULT_GENERATION
    changes: frozenset[tuple[str, str]] = frozenset()

    def get_form(self, probe: CkProbe) -> str:
        """The form that a probe has found in the tree."""
        return dict(self.changes).get(probe.name) or probe.get_form(DEFAULT_GENERATION)

    def list_forms(self, probes: Iterable[CkProbe]) -> Mapping[str, str]:
        """The forms that some probes have found, by name."""
        return {probe.name: self.get_form(probe) for probe in probes}


DEFAULT_API = CkApi()


def make_api(forms: Mapping[str, str], probes: Iterable[CkProbe]) -> CkApi:
    """The API of a tree in which probes have found `forms`. Probes that are not in `forms` do not count."""
    counted = [probe for probe in probes if probe.name in forms]
    changes = [(p.name, forms[p.name]) for p in counted if forms[p.name] != p.get_form(DEFAULT_GENERATION)]
    return CkApi(_name_generation(forms, counted), frozenset(changes))


def make_generation_api(generation: str, probes: Iterable[CkProbe]) -> CkApi:
    """The API of a generation, without a tree."""
    listed = tuple(probes)
    return make_api({probe.name: probe.get_form(generation) for probe in listed}, listed)


def list_generations(probes: Iterable[CkProbe]) -> tuple[str, ...]:
    """The known generations, earliest first."""
    return tuple(sorted({DEFAULT_GENERATION, *(form.generation for probe in probes for form in probe.forms)}))


def _name_generation(forms: Mapping[str, str], probes: list[CkProbe]) -> str:
    """The generation that has these forms; "A to B" for a tree between two generations."""
    possible = [each for each in list_generations(probes) if all(p.get_form(each) == forms[p.name] for p in probes)]
    if DEFAULT_GENERATION in possible or not probes:
        return DEFAULT_GENERATION
    if possible:
        return possible[0]
    found = [form.generation for probe in probes for form in probe.forms if form.name == forms[probe.name]]
    return f"{min(found)} to {max(found)}"


def find_current_api() -> CkApi:
    """The API of the CK headers that kernels are compiled with here; the default one if there are none yet."""
    rocm = knobs.ROCM_PATH.get() or knobs.DEFAULT_ROCM
    ck_path = knobs.CK_PATH.get()
    if ck_path is None and not os.path.isdir(f"{rocm}/include/ck_tile"):  # noqa: PTH112 - cheaper than a Path
        return DEFAULT_API
    setting = (ck_path, rocm)
    if setting not in _FOUND:
        # By name: the toolchain is a higher layer, and ops declare the probes.
        found: CkApi | None = importlib.import_module("tilewright.building.ck_tree").find_used_api()
        if found is None:
            return DEFAULT_API
        _FOUND[setting] = found
    return _FOUND[setting]


# The APIs of headers that were found, by the settings that they were found with.
_FOUND: dict[tuple[str | None, Path], CkApi] = {}
