"""`tilewright verify` of an op that another package adds."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.cli.app import root
from tilewright.dispatch.plan import get_execution
from tilewright.ops import find_op, fits
from tilewright.ops.kernel import Kernel

GPU = archs.load("gfx942")

MakeKernel = Callable[..., Kernel]


@pytest.mark.compile
def test_kernels_of_a_plugin_are_verified(registry: tw.Registry, scale: MakeKernel) -> None:
    """Each with whatever a kernel of the op may need: whole work-groups, a prepared input, a workspace, fp64."""
    kernels = [kernel.slug for kernel in registry.kernels if kernel.arch == "gfx942"]
    done = CliRunner().invoke(root, ["verify", *kernels, "--device", "emulated:gfx942", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["kernels"]
    assert len(found) == len(kernels)


def test_a_problem_that_says_its_factor_has_one_answer(scale: MakeKernel) -> None:
    op, inputs = find_op("scale"), {"x": np.array([1, 2])}
    reference = get_execution("scale").reference
    assert reference(op.problem_type(2, times=3), inputs, GPU)["y"].tolist() == [3, 6]
    with pytest.raises(InvalidValueError, match="has no one answer: say times"):
        reference(op.problem_type(2), inputs, GPU)
    (other,) = fits(scale(2).config, op.problem_type(2, times=3), "gfx942")
    assert other.code == "Z503"
    assert not fits(scale(2).config, op.problem_type(2), "gfx942")
