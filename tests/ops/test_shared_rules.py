"""Rules that ops share: seen through a view, exempted, and joined with an op's own."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.block_gemm.rules import RULES, hardware, pipeline, storage, tiles
from tilewright.ops.rule import Rejection, Rule, merge_rules

GFX942 = archs.load("gfx942")
GEMM = find_op("gemm")
# All that a block GEMM's config has: rules that are shared may read no more.
ATTRIBUTES = (
    "dtype_a",
    "dtype_b",
    "dtype_acc",
    "dtype_c",
    "layout",
    "block",
    "waves",
    "mma",
    "pipeline",
    "scheduler",
    "epilogue",
    "vector",
    "wave_groups",
    "split_k",
)


def bare(overrides: Any) -> SimpleNamespace:
    """GEMM's example with the attributes of a block GEMM only."""
    config = GEMM.make_example(overrides)
    return SimpleNamespace(**{name: getattr(config, name) for name in ATTRIBUTES})


class Turned:
    """A config that says `turned` where a GEMM says its layout."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self.config, name)

    @property
    def layout(self) -> str:
        return "rrr" if self.config.turned else "rcr"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_shared_rule_needs_nothing_that_only_gemm_has(rule: Rule) -> None:
    arch = GEMM.load_example_arch(rule)

    assert set(rule.reads) <= set(ATTRIBUTES)
    assert rule.find_violation(bare(rule.good), arch) is None
    assert rule.find_violation(bare(rule.bad), arch) is not None


def test_gemm_has_every_shared_rule() -> None:
    assert {(r.code, r.slug) for r in RULES} <= {(r.code, r.slug) for r in GEMM.rules}


def test_a_lifted_rule_sees_the_view_and_keeps_its_texts() -> None:
    rule = pipeline.check_compv5_layout
    mine = rule.on(Turned, reads=("pipeline", "turned"), good={"turned": False}, bad={"turned": True}, arch="gfx90a")

    assert (mine.code, mine.slug, mine.what, mine.why, mine.fix) == (
        rule.code,
        rule.slug,
        rule.what,
        rule.why,
        rule.fix,
    )
    assert (mine.reads, mine.arch, mine.enforced_by) == (("pipeline", "turned"), "gfx90a", "compiler")
    assert (mine.good, mine.bad) == ({"turned": False}, {"turned": True})
    assert mine.find_violation(SimpleNamespace(pipeline="compv5", turned=False), GFX942) is None
    violation = mine.find_violation(SimpleNamespace(pipeline="compv5", turned=True), GFX942)
    assert violation is not None
    assert violation.message == "compv5 requires layout rcr, not rrr"


def test_a_lifted_rule_names_only_fields_that_its_op_has() -> None:
    layout = pipeline.check_compv5_layout.on(Turned, reads=("pipeline", "turned"))
    waves = tiles.check_waves_along_k.on(Turned)
    config = SimpleNamespace(**vars(bare({"pipeline": "compv5", "waves": (2, 2, 1)})), turned=True)
    about_layout, about_waves = (rule.find_violation(config, GFX942) for rule in (layout, waves))

    assert about_layout is not None
    assert (about_layout.field, about_layout.nearest) == ("", None)
    assert about_waves is not None
    assert (about_waves.field, about_waves.nearest) == ("waves", (1, 1, 2))


def test_what_is_not_given_to_a_lifted_rule_stays() -> None:
    rule = hardware.check_matrix_instruction
    mine = rule.on(lambda config: config)

    assert dataclasses.replace(mine, check=rule.check) == rule


def test_an_exempt_config_passes() -> None:
    rule = storage.check_lds_size.limit("split_k", (False,))
    large = {"block": (64, 64, 512)}

    assert rule.find_violation(bare(large), GFX942) is not None
    assert rule.find_violation(bare({**large, "split_k": True}), GFX942) is None
    assert rule.reads == ("split_k", *storage.check_lds_size.reads)


def test_a_further_check_sees_configs_that_pass_the_rule() -> None:
    rule = tiles.check_waves_along_k.also(
        lambda config, arch: Rejection("no splits", "split_k") if config.split_k else None,
        reads=(*tiles.check_waves_along_k.reads, "split_k"),
    )
    messages = [
        violation and violation.message
        for changes in ({}, {"split_k": True}, {"split_k": True, "waves": (1, 2, 2)})
        for violation in [rule.find_violation(bare(changes), GFX942)]
    ]

    assert messages == [None, "no splits", "compv3 requires 1 wave along k, not 2"]
    assert rule.reads == (*tiles.check_waves_along_k.reads, "split_k")


def test_an_own_rule_takes_the_place_of_the_shared_one_of_its_code() -> None:
    own = dataclasses.replace(tiles.check_block_multiple, why="of another reason that the op has")
    new = dataclasses.replace(tiles.check_block_multiple, code="T299", slug="new")

    rules = merge_rules((tiles.check_waves_along_k, tiles.check_block_multiple), (new, own))
    assert rules == (own, tiles.check_waves_along_k, new)


def test_a_code_means_one_rule() -> None:
    other = dataclasses.replace(tiles.check_block_multiple, slug="something-else")

    with pytest.raises(ValueError, match="T201 is used twice: for block-not-covered and for something-else"):
        merge_rules((tiles.check_block_multiple,), (other,))
