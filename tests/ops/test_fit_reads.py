"""What rules about problems read of a config: no more than they declare, since selection asks once for all kernels
that have the declared fields in common."""

from __future__ import annotations

import random
from typing import Any

import pytest

from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.ops import OPS
from tilewright.ops.op import Op

GPUS = ("gfx942", "gfx1201", pytest.param("gfx950", marks=pytest.mark.deep))
KERNELS = 60
FOREIGN = 12  # problems of other kernels that each kernel is asked about, beside its own


class Recorder:
    """A config that notes which of its fields are read, by its own properties too."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        made = getattr(type(self.config), name, None)
        if isinstance(made, property):
            return made.fget(self)  # type: ignore[misc]
        self.read.add(name)
        return getattr(self.config, name)


def drawn(op: Op, arch: Arch, rng: random.Random) -> list[Any]:
    kinds = list_strata(op, arch)
    configs = [draw_legal(op, arch, rng, fixed) for fixed in rng.sample(kinds, min(len(kinds), KERNELS))]
    return [config for config in configs if config is not None]


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_fit_rules_read_only_what_they_declare(op: Op, gpu: str) -> None:
    arch, rng = archs.load(gpu), random.Random(11)
    assert op.execution is not None
    trials = [(config, op.execution.trials(config, arch)) for config in drawn(op, arch, rng)]
    problems = [problem for _, own in trials for problem in own]
    assert len(trials) >= {"moe_sorting": 16}.get(op.name, KERNELS // 3)  # it has no more
    for config, own in trials:
        for problem in (*own[:FOREIGN], *rng.sample(problems, FOREIGN)):
            for rule in op.fit_rules:
                recorder = Recorder(config)
                rule.check(recorder, problem, arch)
                assert recorder.read <= set(rule.reads), f"{rule.code} also reads {recorder.read - set(rule.reads)}"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_fit_rules_answer_alike_for_kernels_alike_in_what_they_declare(op: Op) -> None:
    """The same of answers: among many kernels, no two with equal declared fields get different ones."""
    arch, rng = archs.load("gfx950"), random.Random(12)
    assert op.execution is not None
    configs = drawn(op, arch, rng)
    problems = [problem for config in configs for problem in op.execution.trials(config, arch)[:3]]
    for problem in rng.sample(problems, 40):
        for rule in op.fit_rules:
            answers: dict[tuple[Any, ...], Any] = {}
            for config in configs:
                key = tuple(getattr(config, name) for name in rule.reads)
                assert answers.setdefault(key, rule.check(config, problem, arch)) == rule.check(config, problem, arch)
