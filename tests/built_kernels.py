"""Kernels that tests run, built once into one store that all tests share and that is kept between runs.

The CI tier (`--tier ci`, `make test-ci`) builds the kernels of tests/ci_kernels.txt before its first test, all at once.
Compiling is about half of what CI costs, so there a test that asks for any other kernel fails. Elsewhere it is built.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ci_kernels import LIST, STORE, change_source, format_name, read_list, strip_name
from tilewright.base import knobs
from tilewright.building.builder import build_compile_jobs, build_kernels
from tilewright.building.compile_costs import costs_file
from tilewright.building.compile_job import CompileJob
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.ops import OPS
from tilewright.ops.kernel import Kernel

ADVICE = (
    f"CI builds the kernels of {LIST.parent.name}/{LIST.name} only. Use one of them, add this one with "
    "`python tools/ci_kernels.py add NAME`, or mark the test `deep`."
)


_RECORDED = pytest.StashKey[int]()


class _Tier:
    """Set once, by the option `--tier`."""

    ci = False


def with_store() -> dict[str, str]:
    """The environment of a process that builds kernels: what it needs is in the tests' store already."""
    return {**os.environ, knobs.STORE.name: str(STORE.root)}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=("ci", "deep"), default="deep", help="ci: without the tests marked `deep`")


def pytest_configure(config: pytest.Config) -> None:
    _Tier.ci = config.getoption("--tier") == "ci"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--tier") == "ci":
        deep = [item for item in items if item.get_closest_marker("deep")]
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_RECORDED] = len(recorded_costs())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail when anything was compiled that is not in the list, also by a process that a test started."""
    if not _Tier.ci or hasattr(session.config, "workerinput"):
        return
    said = _compiled_outside_the_list(session.config)
    if said and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in _compiled_outside_the_list(config) if _Tier.ci else ():
        terminalreporter.write_line(f"compiled, and not in CI's list of kernels: {name}. {ADVICE}", red=True)


def _compiled_outside_the_list(config: pytest.Config) -> list[str]:
    """Kernels of shipped ops that were compiled since the session began and are not in the list."""
    shipped = tuple(f"{op.name}-" for op in OPS)
    slugs = recorded_costs()[config.stash[_RECORDED] :]
    bare = {strip_name(name) for name in _listed()}
    return sorted({slug for slug in slugs if slug.startswith(shipped) and slug not in bare})


def recorded_costs() -> list[str]:
    """The kernels that were ever compiled into the tests' store, in order."""
    file = costs_file(STORE)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [str(json.loads(line)["slug"]) for line in lines]


def in_tier_ci() -> bool:
    """Whether the tests of the CI tier run, which compile nothing that is not in its list."""
    return _Tier.ci


@functools.cache
def _listed() -> frozenset[str]:
    return frozenset(entry.name for entry in read_list())


def in_ci(kernel: Kernel, change: str = "") -> bool:
    """Whether CI builds the kernel, or its source with the change of that name."""
    return format_name(kernel, change) in _listed()


def tiered(cases: Iterable[Any], kernels_of: Callable[[Any], Iterable[Kernel]]) -> list[Any]:
    """Parameters of a test. Those that need a kernel that CI does not build are `deep`."""

    def parameter(case: Any) -> Any:
        marks = () if all(map(in_ci, kernels_of(case))) else (pytest.mark.deep,)
        return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks)

    return [parameter(case) for case in cases]


def built(kernels: Iterable[Kernel]) -> list[Artifact]:
    """What the build engine makes of the kernels, all of which must compile."""
    wanted = list(kernels)
    for kernel in wanted:
        check_listed(kernel)
    result = build_kernels(wanted, tiers=Tiers(STORE))
    assert result.failures == {}
    return [result.artifacts[kernel] for kernel in wanted]


def get_toolchain() -> Toolchain:
    """The toolchain, looked for once for each setting of the environment: hundreds of tests ask for it."""
    return _find_toolchain(tuple(os.environ.get(name, "") for name in ("PATH", *(knob.name for knob in knobs.KNOBS))))


@functools.cache
def _find_toolchain(_: tuple[str, ...]) -> Toolchain:
    return find_toolchain()


def tried(kernel: Kernel, change: str = "") -> Artifact | Failure:
    """What the build engine makes of a kernel, whatever the rules say about it, and of its changed source."""
    check_listed(kernel, change)
    source = render_unchecked(kernel)
    unit = CompileJob(change_source(source, change) if change else source, get_toolchain())
    return build_compile_jobs([unit], jobs=1, tiers=Tiers(STORE)).results[kernel]


def built_unchecked(kernel: Kernel, change: str = "") -> Artifact:
    """The same for a kernel that must compile."""
    entry = tried(kernel, change)
    assert isinstance(entry, Artifact), entry
    return entry


def check_listed(kernel: Kernel, change: str = "") -> None:
    """Fail in the CI tier for a kernel that CI does not build."""
    if _Tier.ci and not in_ci(kernel, change):
        pytest.fail(f"{format_name(kernel, change)} is not in CI's list of kernels. {ADVICE}", pytrace=False)
