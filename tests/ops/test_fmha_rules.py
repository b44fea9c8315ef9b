"""The rules of attention as a whole: which fields a family has, and how its GEMMs are seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.fields import list_fields
from tilewright.ops.fmha import rules
from tilewright.ops.fmha.kind import AttentionKind, matrix_instructions
from tilewright.ops.fmha.kinds import KINDS
from tilewright.ops.fmha.rules.all_kinds import list_gemms
from tilewright.ops.fmha.rules.examples import GRADIENT
from tilewright.ops.rule import find_violations

FMHA = find_op("fmha")
# Fields under other names in the sources, and those that our own parts of a source read for all families.
SAID_AS = {
    **{"v_layout": "v_row_major", "waves": "Waves0", "mma": "Mma0"},
    **{"kv_layout": "vectorised", "page_lookup": "by_table"},
}


def test_every_module_of_rules_is_used() -> None:
    folder = Path(rules.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == {name for name in vars(rules) if name in modules}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_launcher_reads_the_fields_that_its_family_uses(kind: AttentionKind) -> None:
    """A field that no source of the family reads would give one kernel several names."""
    texts = [path.read_text() for name, path in FMHA.launchers.items()]
    shared = (Path(rules.__file__).parents[1] / "launch" / "kernel.hpp").read_text()
    own = (Path(rules.__file__).parents[1] / "launch" / f"{kind.name}.hpp").read_text()
    read = set(re.findall(r"\bD::(\w+)", own + shared + "".join(texts)))
    assert {SAID_AS.get(name, name) for name in kind.fields} <= read


def test_unused_fields_are_those_of_other_families() -> None:
    optional = {name for name, field in list_fields(FMHA.config_type).items() if not field.required}
    assert {name for kind in KINDS for name in kind.fields} == optional


def test_gemms_of_gradients() -> None:
    found = list_gemms(FMHA.make_example(GRADIENT))
    assert [str(gemm.block) for gemm in found] == ["32x128x64", "128x64x32", "32x128x64", "128x64x32", "32x64x32"]
    assert [str(gemm.waves) for gemm in found] == ["1x4x1", "4x1x1", "1x4x1", "4x1x1", "1x4x1"]


def test_matrix_instructions_are_one_for_each_gemm() -> None:
    arch = archs.load("gfx942")
    assert len(matrix_instructions(FMHA.make_example(), arch)) == 2
    mixed = FMHA.make_example({"mma": (32, 32, 16, 16, 16, 16)})
    assert len(set(matrix_instructions(mixed, arch))) == 2
    combine = {"family": "combine", "pipeline": "combine", "block": (32, 64), "waves": (), "mma": ()}
    assert matrix_instructions(FMHA.make_example(combine), arch) == ()


def test_a_message_names_the_gemm() -> None:
    wrong = FMHA.make_example({"mma": (32, 32, 16, 32, 32, 4)})
    (found,) = [v for v in find_violations(FMHA.rules, wrong, archs.load("gfx942")) if v.code == "A101"]
    assert "GEMM 1" in found.message
    assert "32x32x4" in found.message
