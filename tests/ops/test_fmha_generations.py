"""Sources, rules and LDS of attention that differ between generations of CK Tile."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.arch.ck_api import DEFAULT_API, make_generation_api
from tilewright.arch.spec import Arch
from tilewright.codegen.render import CK_API_HEADER, read_support_files, render_unchecked
from tilewright.ops import find_op
from tilewright.ops.fmha.rules.examples import ASYNC, COMBINED, GRADIENT, MMA_16, PAGED, PREFILL, SPLIT_NWARP, V3
from tilewright.ops.rule import find_violations

FMHA = find_op("fmha")
NEWER_API = make_generation_api("2026-06", FMHA.ck_probes)
HEAD_80 = (128, 128, 16, 128, 32, 80)
FP8 = {"dtype": "fp8bf16", "mma": (32,) * 6}


def broken_rules(changes: Any, arch: Arch) -> list[str]:
    return [violation.code for violation in find_violations(FMHA.rules, FMHA.make_example(changes), arch)]


@pytest.mark.parametrize(
    ("gpu", "changes", "earlier", "newer"),
    [
        ("gfx942", {"pipeline": "qr"}, [], []),
        ("gfx942", {"pipeline": "qs"}, [], ["P490"]),
        ("gfx942", FP8, [], ["P494"]),
        ("gfx950", FP8, [], []),
        ("gfx950", {**FP8, "static_quant": True}, [], ["P491"]),
        ("gfx942", {**PAGED, **FP8, "static_quant": True}, [], []),
        ("gfx942", PREFILL, [], ["P492"]),
        ("gfx942", {**PREFILL, "mode": "group"}, [], []),
        ("gfx950", {**V3, "lse": True}, ["P419"], []),
        ("gfx1100", {"mma": MMA_16}, ["P403"], []),
        ("gfx1100", {**PAGED, "mma": MMA_16}, ["P432"], []),
        ("gfx1100", SPLIT_NWARP, ["P446"], []),
        ("gfx1100", COMBINED, [], []),
        ("gfx942", {"block": HEAD_80}, ["P483"], []),
        ("gfx942", {**ASYNC, "block": HEAD_80}, ["P483"], ["P496"]),
        ("gfx942", {**PAGED, "block": HEAD_80}, ["P430"], ["P496"]),
    ],
)
def test_rules_of_generations(gpu: str, changes: Any, earlier: list[str], newer: list[str]) -> None:
    assert broken_rules(changes, archs.load(gpu, DEFAULT_API)) == earlier
    assert broken_rules(changes, archs.load(gpu, NEWER_API)) == newer


def test_a_rejection_names_the_generation() -> None:
    (violation,) = find_violations(FMHA.rules, FMHA.make_example({"pipeline": "qs"}), archs.load("gfx942", NEWER_API))
    assert "is not supported with CK 2026-06" in violation.message


def test_v3_has_no_lds_for_probabilities_since_2026() -> None:
    config = FMHA.make_example(V3)
    sizes = [FMHA.kind(config).lds_bytes(config, archs.load("gfx950", api)) for api in (DEFAULT_API, NEWER_API)]
    assert sizes == [256 * 128 * 2, 4 * 8704]  # bytes of probabilities, and of four buffers


@pytest.mark.parametrize(
    "changes", [{}, {**PREFILL, "mode": "group"}, GRADIENT], ids=["forward", "prefill", "gradients"]
)
def test_generations_differ_in_macros_of_the_launchers_only(changes: Any) -> None:
    """Launchers have the second form of a template or of a list of arguments; a kernel's own source does not."""
    kernel = FMHA.make_kernel(FMHA.make_example(changes), "gfx942")
    earlier, newer = render_unchecked(kernel, DEFAULT_API), render_unchecked(kernel, NEWER_API)
    assert earlier.text == newer.text
    assert {name for name, text in earlier.files.items() if newer.files[name] != text} == {CK_API_HEADER}


def test_each_macro_of_a_launcher_is_a_form_of_a_probe() -> None:
    forms = {f"TILEWRIGHT_CK_{probe.name}_{form.name}".upper() for probe in FMHA.ck_probes for form in probe.forms}
    files = {name: text for name, text in read_support_files("fmha", DEFAULT_API).items() if "fmha" in name}
    used = {word for text in files.values() for word in re.findall(r"\bTILEWRIGHT_CK_\w+", text)}
    assert used
    assert used <= forms


def test_launchers_include_files_that_a_kernel_has() -> None:
    files = read_support_files("fmha", DEFAULT_API)
    included = {name for text in files.values() for name in re.findall(r'#include "(tilewright_\w+\.\w+)"', text)}
    assert CK_API_HEADER in included
    assert included <= set(files)
