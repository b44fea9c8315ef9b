"""Trials have two values of every field that a kernel takes at run time: a kernel that ignores one must be wrong."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops import OPS
from tilewright.ops.fields import ChoiceType, FlagType
from tilewright.ops.op import Op
from tilewright.ops.problem_field import ExtentsType, IntegerType, NumberType, ValueType, list_declared_fields
from tilewright.ops.rule import is_legal

GPUS = ("gfx942", pytest.param("gfx950", marks=pytest.mark.deep))
KERNELS = 12
TRIED = 2  # trials in which a field is changed, to find out whether a kernel reads it


def list_other_values(kind: ValueType[Any], value: Any) -> list[Any]:
    """Other values of a field's type; some of them may not fit the problem or the kernel."""
    if isinstance(kind, (ChoiceType, FlagType)):
        return [each for each in kind.values if each != value]
    if isinstance(kind, NumberType):
        return [2 * value + 0.25, value / 2 + 0.125]
    if isinstance(kind, IntegerType):
        return [value + 1, 2 * value, value + 8, value - 1, value + 64]
    if isinstance(kind, ExtentsType):
        return [tuple(each + 1 for each in value)]
    raise TypeError(f"other values of {type(kind).__name__} are not known: add them here")


def change_field(op: Op, config: Any, trials: list[Any], name: str, arch: Arch) -> Iterator[tuple[Any, Any]]:
    """Yield trials, and these problems with another value of a field that the kernel supports, too."""
    kind = list_declared_fields(op.problem_type)[name].kind
    for value in list_other_values(kind, getattr(trials[0], name)):
        for trial in trials:
            try:
                changed = dataclasses.replace(trial, **{name: value})
            except InvalidValueError:
                continue
            if is_legal(op.fit_rules, config, changed, arch):
                yield trial, changed


def find_constant_fields(op: Op, config: Any, arch: Arch) -> list[str]:
    """Fields that are the same in all trials, although the kernel reads them and supports other values."""
    execution = op.execution
    assert execution is not None
    trials = sorted(execution.trials(config, arch), key=lambda problem: problem.flops)
    middle = trials[len(trials) // 3 :][:TRIED]
    inputs = {trial: execution.inputs(trial, 1, arch) for trial in middle}
    results = {trial: execution.reference(trial, inputs[trial], arch) for trial in middle}

    def is_read(trial: Any, changed: Any) -> bool:
        """Whether the changed problem has other tensors, or other results of the same inputs."""
        if execution.tensors(trial) != execution.tensors(changed):
            return True
        other = execution.reference(changed, inputs[trial], arch)
        return any(not np.array_equal(values, other[name], equal_nan=True) for name, values in results[trial].items())

    found = []
    for name, field in list_declared_fields(op.problem_type).items():
        if not field.shorthand and len({getattr(trial, name) for trial in trials}) == 1:
            pairs = itertools.islice(change_field(op, config, middle, name, arch), TRIED)
            if any(is_read(*pair) for pair in pairs):
                found.append(name)
    return found


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_trials_have_two_values_of_every_field(op: Op, gpu: str) -> None:
    arch, rng = archs.load(gpu), random.Random(gpu)
    kinds = list_strata(op, arch)
    drawn = [draw_legal(op, arch, rng, fixed) for fixed in rng.sample(kinds, min(len(kinds), KERNELS))]
    constant = {config: find_constant_fields(op, config, arch) for config in drawn if config is not None}
    assert {config: names for config, names in constant.items() if names} == {}
