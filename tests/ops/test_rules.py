"""Every rule: its examples, its documentation, what it reads, and that it never fails."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import configs

from built_kernels import in_tier_ci
from tilewright import arch as archs
from tilewright.arch import Arch
from tilewright.arch.ck_api import CkApi
from tilewright.ops import OPS
from tilewright.ops.op import Op
from tilewright.ops.rule import Rejection, Rule, find_violations, rule

RULES = [pytest.param(op, r, id=r.code) for op in OPS for r in op.rules]
FIT_RULES = [pytest.param(op, r, id=r.code) for op in OPS for r in op.fit_rules]


def fit_example(op: Op, overrides: Any) -> tuple[Any, Any]:
    values = dict(overrides)
    sizes = values.pop("problem", {})
    return op.make_example(values), op.problem_type(**{**op.example_problem, **sizes})


@pytest.mark.parametrize(("op", "r"), RULES)
def test_a_rule_passes_its_good_example_and_fails_its_bad_one(op: Op, r: Rule) -> None:
    arch = op.load_example_arch(r)

    assert r.find_violation(op.make_example(r.good), arch) is None
    violation = r.find_violation(op.make_example(r.bad), arch)
    assert violation is not None
    assert violation.code == r.code


@pytest.mark.parametrize(("op", "r"), FIT_RULES)
def test_a_fit_rule_passes_its_good_example_and_fails_its_bad_one(op: Op, r: Rule) -> None:
    arch = op.load_example_arch(r)

    assert r.find_violation(*fit_example(op, r.good), arch) is None
    assert r.find_violation(*fit_example(op, r.bad), arch) is not None


@pytest.mark.parametrize(("op", "r"), [*RULES, *FIT_RULES])
def test_a_rule_is_documented_and_its_message_carries_facts(op: Op, r: Rule) -> None:
    arch = op.load_example_arch(r)
    subjects = (*fit_example(op, r.bad), arch) if r in op.fit_rules else (op.make_example(r.bad), arch)
    violation = r.find_violation(*subjects)

    assert violation is not None
    assert all(len(text) > 15 for text in (r.what, r.why, r.fix))
    # A message says what is there: a number of the config or one of its values.
    values = {str(getattr(subjects[0], name)) for name in r.reads}
    assert any(ch.isdigit() for ch in violation.message) or any(v in violation.message for v in values)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_example_of_an_op_is_legal(op: Op) -> None:
    assert find_violations(op.rules, op.make_example(), archs.load("gfx942")) == []


def test_codes_and_slugs_are_unique() -> None:
    for op in OPS:
        rules = [*op.rules, *op.fit_rules]
        assert len({r.code for r in rules}) == len(rules)
        assert len({r.slug for r in rules}) == len(rules)


class _Recorder:
    """A config that notes which of its fields are read."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.config, name)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_rules_read_only_what_they_declare_and_never_fail(op: Op) -> None:
    """Any config at all gets an answer from every rule on every GPU, and no rule looks further than it says."""
    specs = [archs.load(name) for name in archs.arch_names()]

    @settings(max_examples=150 if in_tier_ci() else 400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(configs(op))
    def check(config: Any) -> None:
        for spec in specs:
            for r in op.rules:
                recorder = _Recorder(config)
                r.check(recorder, spec)
                assert recorder.read <= set(r.reads), f"{r.code} also reads {recorder.read - set(r.reads)}"

    check()


@pytest.mark.parametrize(("op", "r"), RULES)
@pytest.mark.parametrize("example", ["good", "bad"])
def test_rules_read_only_what_they_declare_in_their_examples(op: Op, r: Rule, example: str) -> None:
    """Random configs rarely come to the end of a rule, its examples do."""
    recorder = _Recorder(op.make_example(getattr(r, example)))
    r.check(recorder, op.load_example_arch(r))
    assert recorder.read <= set(r.reads)


def test_an_undocumented_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="must be documented"):

        @rule("X1", "x", reads=(), enforced_by="tilewright", good={}, bad={})
        def undocumented(config: Any, arch: Any) -> None:
            """Says what, but neither why nor how to mend it."""


def test_a_rule_of_some_generations_of_ck_applies_to_them_only() -> None:
    @rule("X1", "x", reads=(), enforced_by="tilewright", good={}, bad={})
    def check(config: object, arch: Arch) -> Rejection | None:
        """The config is rejected.

        Why: this is a test.
        Fix: there is none."""
        return Rejection("rejected")

    limited = check.limit_generations(since="2025-11", until="2026-06")
    assert limited.generations == "since 2025-11 and before 2026-06"
    verdicts = {
        each: limited.check(object(), archs.load("gfx942", CkApi(each))) is None
        for each in ("2025-07", "2025-11", "2026-03", "2026-06")
    }
    assert verdicts == {"2025-07": True, "2025-11": False, "2026-03": False, "2026-06": True}


def test_causes_suffice_for_a_rejection() -> None:
    """Whatever the other fields are, a config with the values of the causes is rejected."""
    found = set()
    rng = random.Random(3)
    for op in OPS:
        for r in op.rules:
            config, arch = op.make_example(r.bad), op.load_example_arch(r)
            rejection = r.check(config, arch)
            assert rejection is not None
            if not rejection.causes:
                continue
            found.add(r.code)
            kept = {*rejection.causes, *r.when}
            assert kept < {*r.reads}
            for _ in range(50):
                others = {name: rng.choice(op.list_candidates(name, arch)) for name in r.reads if name not in kept}
                assert r.check(dataclasses.replace(config, **others), arch) is not None  # type: ignore[type-var]
    assert found == {"T214", "T215", "T216"}
