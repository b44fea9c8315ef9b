"""How results of rescale are checked: inputs, exact outputs, allowed errors, and problems to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.arch import Arch
from tilewright.arch.number_formats import compute_spacing, to_numpy_dtype
from tilewright.ops.tolerance import Tolerance

from . import Config
from .problem import Problem


def make_inputs(problem: Problem, seed: int, arch: Arch) -> Mapping[str, Any]:
    """Random inputs, by the names of the tensors."""
    x = np.random.default_rng(seed).uniform(-1, 1, problem.n)
    return {"x": x.astype(to_numpy_dtype(problem.dtype, arch))}


def compute_reference(problem: Problem, inputs: Mapping[str, Any], _: Arch) -> Mapping[str, Any]:
    """The outputs in float64. They are exact: a product of two fp32 numbers has at most 48 bits."""
    return {"y": np.float64(np.float32(problem.factor)) * inputs["x"].astype(np.float64)}


def compute_tolerance(
    _config: Config, problem: Problem, _inputs: Mapping[str, Any], reference: Mapping[str, Any], arch: Arch
) -> Mapping[str, Tolerance]:
    """Kernels round the product to fp32, and then to the type of y: by at most half a unit in the last place."""
    y = reference["y"]
    found = Tolerance(np.zeros_like(y), np.zeros_like(y))
    for dtype in dict.fromkeys(("fp32", problem.dtype)):
        half = compute_spacing(y, dtype, arch) / 2
        found += Tolerance(half, half / 3**0.5)  # all errors up to half a unit are equally likely
    return {"y": found}


def list_trials(config: Config, _: Arch) -> tuple[Problem, ...]:
    """Problems at the edges of a kernel: one element, one work-group, one element less or more, several work-groups."""
    group = config.threads * config.items
    trials = {1: 2.0, group - 1: -0.5, group: 0.1, group + 1: 1 / 3, 7 * group + 3: -1.75}
    return tuple(Problem(n=n, dtype=config.dtype, factor=factor) for n, factor in trials.items())
