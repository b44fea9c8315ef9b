"""CPU and wall time of every test, summed by folder, shown at the end of a run and held against a budget.

Loaded as a plugin by tests/conftest.py. `--budgets` makes the run fail when a folder uses more than it has in
tests/budgets.toml. Budgets are CPU seconds, child processes included: on a shared machine wall time depends on the
neighbours, and what an op adds to CI does not.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BUDGETS = Path(__file__).with_name("budgets.toml")
SLOWEST = 20
_LAST = pytest.StashKey[float]()


@dataclass
class Spent:
    """Seconds of one test, or of one folder."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    tests: int = 0

    def add(self, other: Spent) -> None:
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.tests += other.tests


@dataclass(eq=False)
class Times:
    """What the tests of a run took, by node id."""

    by_test: dict[str, Spent] = field(default_factory=dict)
    started_s: float = field(default_factory=time.monotonic)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.by_test.setdefault(report.nodeid, Spent(tests=1))
        spent.add(Spent(report.duration, getattr(report, "cpu_s", 0.0)))

    def by_folder(self) -> dict[str, Spent]:
        folders: defaultdict[str, Spent] = defaultdict(Spent)
        for name, spent in self.by_test.items():
            folders[folder_of(name)].add(spent)
        return dict(sorted(folders.items(), key=lambda item: -item[1].cpu_s))


def folder_of(node: str) -> str:
    """`tests/ops/test_space.py::test_x` → `ops`."""
    parts = node.split("::", maxsplit=1)[0].split("/")
    return parts[1] if len(parts) > 2 else parts[-1]


def over_budget(folders: Mapping[str, Spent], budgets: Mapping[str, float]) -> list[str]:
    """Sentences about folders that use more than their budget, or have none."""
    said = []
    for name, spent in folders.items():
        if name not in budgets:
            said.append(f"tests/{name} has no budget: give it one in {BUDGETS.name} (it used {spent.cpu_s:.0f} CPU s).")
        elif spent.cpu_s > budgets[name]:
            said.append(
                f"tests/{name} used {spent.cpu_s:.0f} CPU s, its budget is {budgets[name]:.0f}: make its tests "
                f"cheaper, mark some `deep`, or raise the budget in {BUDGETS.name} and say why."
            )
    return said


def read_budgets() -> dict[str, float]:
    return {name: float(value) for name, value in tomllib.loads(BUDGETS.read_text())["cpu_seconds"].items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budgets", action="store_true", help="fail when a folder uses more CPU time than its budget")
    parser.addoption("--times", metavar="FILE", help="write the seconds of every test to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(), "times")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    now = _cpu_s()
    report.cpu_s = now - item.stash[_LAST]  # type: ignore[attr-defined]
    item.stash[_LAST] = now
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_LAST] = _cpu_s()
    return (yield)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    times = session.config.pluginmanager.get_plugin("times")
    said = over_budget(times.by_folder(), read_budgets()) if session.config.getoption("--budgets") else []
    if said and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    times = config.pluginmanager.get_plugin("times")
    if config.getoption("--times"):
        found = {name: [round(s.wall_s, 3), round(s.cpu_s, 3)] for name, s in times.by_test.items()}
        Path(config.getoption("--times")).write_text(json.dumps(found, indent=0))
    if not config.getoption("--budgets"):
        return
    folders, budgets = times.by_folder(), read_budgets()
    terminalreporter.section("time per folder")
    terminalreporter.write_line(f"{'folder':16} {'tests':>6} {'wall s':>8} {'CPU s':>8} {'budget':>8}")
    for name, spent in folders.items():
        budget = f"{budgets[name]:8.0f}" if name in budgets else "    none"
        terminalreporter.write_line(f"{name:16} {spent.tests:6} {spent.wall_s:8.0f} {spent.cpu_s:8.0f} {budget}")
    phases = os.environ.get("TILEWRIGHT_TEST_PHASES", "")  # set by .ci/run
    minutes = (time.monotonic() - times.started_s) / 60
    terminalreporter.write_line(f"minutes: {phases + '; ' if phases else ''}the tests took {minutes:.0f}")
    terminalreporter.section(f"the {SLOWEST} slowest tests, CPU s")
    for name, spent in sorted(times.by_test.items(), key=lambda item: -item[1].cpu_s)[:SLOWEST]:
        terminalreporter.write_line(f"{spent.cpu_s:7.1f} {spent.wall_s:7.1f} wall  {name}")
    for sentence in over_budget(folders, budgets):
        terminalreporter.write_line(f"over budget: {sentence}", red=True)
