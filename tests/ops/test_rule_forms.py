"""Forms of rules: views of other configs, joined rules, and groups with limits and examples in common."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from tilewright import arch as archs
from tilewright.ops.rule import Rejection, Rule, rule
from tilewright.ops.rule_forms import Overlay, RuleGroup, examples, join_rules

GFX942 = archs.load("gfx942")


@rule("X1", "odd", reads=("kind", "size"), when={"kind": "a"}, enforced_by="tilewright", good={}, bad={})
def check_even(config: Any, arch: Any) -> Rejection | None:
    """The size must be even.

    Why: the tests need a rule.

    Fix: use an even size.
    """
    return Rejection(f"{config.size} is odd", "size", config.size + 1) if config.size % 2 else None


def find(found: Rule, **values: object) -> Rejection | None:
    return found.check(SimpleNamespace(**values), GFX942)


def test_a_view_can_be_one_config_several_or_none() -> None:
    views = {"one": SimpleNamespace(kind="a", size=3), "none": None}
    views["several"] = [SimpleNamespace(kind="a", size=2), SimpleNamespace(kind="a", size=5)]  # type: ignore[assignment]
    seen = check_even.on(lambda config: views[config.name], reads=("name",))
    numbered = check_even.on(
        lambda config: views[config.name], report=lambda fault, i: dataclasses.replace(fault, message=f"part {i}")
    )

    assert seen.reads == ("name",)
    assert find(seen, name="one") == Rejection("3 is odd")
    assert find(seen, name="none") is None
    assert find(seen, name="several") == Rejection("5 is odd")
    assert find(numbered, name="several") == Rejection("part 1", "size", 6)


def test_an_overlay_replaces_some_values() -> None:
    as_a = check_even.on(lambda config: Overlay(config, kind="a"), when={"kind": "b"})

    assert find(as_a, kind="b", size=3) == Rejection("3 is odd", "size", 4)
    assert find(as_a, kind="c", size=3) is None
    assert as_a.when == {"kind": ("b",)}


def test_joined_rules_read_all_fields_and_give_the_first_rejection() -> None:
    other = check_even.on(lambda config: Overlay(config, size=config.other), reads=("other",), when={"kind": "a"})
    both = join_rules(
        *("X2", "both", "Both must be even.", [check_even, other]),
        **{"enforced_by": "tilewright", "good": {}, "bad": {}, "why": "of the tests", "fix": "use even sizes"},  # type: ignore[arg-type]
    )

    assert both.reads == ("kind", "size", "other")
    assert both.when == {"kind": ("a",)}
    assert find(both, kind="a", size=2, other=4) is None
    assert find(both, kind="a", size=2, other=7) == Rejection("7 is odd")
    assert find(both, kind="a", size=5, other=7) == Rejection("5 is odd", "size", 6)


def test_a_group_limits_its_rules_and_completes_their_examples() -> None:
    group = RuleGroup({"kind": "a"}, {"size": 4, "depth": 1}, arch="gfx950")

    @examples(bad={"depth": 2})
    @group.rule("X3", "deep", "device", ("size",), when={"depth": (2, 3)})
    def check_depth(config: Any, arch: Any) -> Rejection | None:
        """Kernels are flat.

        Why: the tests need a rule.

        Fix: use depth 1.
        """
        return Rejection(f"depth is {config.depth} at size {config.size}", "depth", 1)

    assert check_depth.when == {"kind": ("a",), "depth": (2, 3)}
    assert set(check_depth.reads) == {"kind", "depth", "size"}
    assert (check_depth.good, check_depth.bad) == ({"size": 4, "depth": 1}, {"size": 4, "depth": 2})
    assert (check_depth.arch, check_depth.enforced_by) == ("gfx950", "device")
    assert find(check_depth, kind="b", depth=2, size=4) is None
    assert find(check_depth, kind="a", depth=2, size=4) == Rejection("depth is 2 at size 4", "depth", 1)
