"""Kernels with the CK headers of 2026: they compile as the rules predict, and compute right in strict mode.

CI tests the kernels of its list that are marked with this tree on some of their trials, and the deep tier those of
newer_tree.txt, too, on all. `make trees` compares a larger sample with two trees; its results are in
docs/ck-generations.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from built_kernels import in_tier_ci
from ci_kernels import STORE, read_list
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tests.proof.kept_kernels import list_kernels
from tests.proof.trees import run_tree
from tests.proof.truth import Case
from tilewright.building.store.tiers import Tiers
from tilewright.ops import OPS
from tilewright.ops.kernel import Kernel

pytestmark = [pytest.mark.compile, pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)]
MOST_TRIALS_IN_CI = 3
LISTED = {entry.kernel for entry in read_list() if entry.tree == NEWER}
KERNELS = [
    pytest.param(kernel, marks=() if kernel in LISTED else pytest.mark.deep, id=kernel.slug)
    for kernel in list_kernels(NEWER)
]


@pytest.fixture(autouse=True)
def newer_tree() -> Iterator[str]:
    with use_tree(TREES / NEWER) as generation:
        yield generation


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_is_as_the_rules_say(kernel: Kernel) -> None:
    most = MOST_TRIALS_IN_CI if in_tier_ci() else None
    (result,) = run_tree([Case(kernel, "computes")], 1, Tiers(STORE), most)
    assert result.finding == ""
    assert result.said != "computes", "an accepted kernel must have run"


def test_the_list_has_kernels_of_every_op() -> None:
    assert {kernel.op for kernel in LISTED} >= {op.name for op in OPS if op.ck_probes}
