"""Kernels that were drawn before and are kept: those of tests/compile/samples, of CI's list and of DEEP.

The tests' store has many of them, so that tables of truth and verified can be written with few compiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ci_kernels import read_list, read_samples
from ck_trees import NEWER
from tests.proof.truth import Case
from tilewright import arch as archs
from tilewright.building.compile_costs import read_costs
from tilewright.building.compile_job import CompileJob
from tilewright.building.store.tiers import open_tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations

COMPUTES = "computes"
# Kernels for the newer CK tree that CI does not build.
DEEP = Path(__file__).parents[1] / "compile" / "newer_tree.txt"


def list_kernels(tree: str) -> list[Kernel]:
    """List the kernels of CI's list, and of DEEP, for a CK tree."""
    listed = [entry.kernel for entry in read_list() if entry.tree == tree and "+" not in entry.name]
    names = DEEP.read_text(encoding="utf-8").splitlines() if tree == NEWER else []
    return [*listed, *(parse_kernel(name) for name in names if not name.startswith("#"))]


def list_kept(op: Op, tree: str = "") -> list[Case]:
    """List the kept kernels of an op for a CK tree, an empty string for the fetched one, each with the one rule that it
    breaks with the headers in use. Kernels that break several rules are left out."""
    sample = [kernel for _, kernel in read_samples(tree)]
    cases = []
    for kernel in dict.fromkeys((*sample, *list_kernels(tree))):
        if kernel.op == op.name:
            broken = find_violations(op.rules, kernel.config, archs.load(kernel.arch))
            if len(broken) < 2:
                cases.append(Case(kernel, broken[0].code if broken else COMPUTES))
    return cases


def choose_cheap(cases: Iterable[Case], compiles: int) -> list[Case]:
    """Choose the cases that the store in use has, and up to `compiles` others, both the cheapest first."""
    store, toolchain = open_tiers().local, find_toolchain()
    costs = read_costs(store)
    known: list[Case] = []
    missing: list[Case] = []
    for case in sorted(cases, key=lambda case: costs.estimate_cpu_s(case.kernel) or 0.0):
        key = CompileJob(render_unchecked(case.kernel), toolchain).key
        (missing if store.get(key) is None else known).append(case)
    return [*known, *missing[:compiles]]
