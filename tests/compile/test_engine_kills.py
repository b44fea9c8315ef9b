"""Builds that are killed at any instant: nothing half-made is left, nothing goes on, and the next build is whole."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine import (
    all_load,
    at_work_in,
    build,
    compilers_of,
    descendants,
    eventually,
    lend_headers,
    program_of,
    sound,
)

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

SEED = 36_2026
PYTHON, NINJA, CLANG = "python", "ninja", "clang"
# Who is killed. What a build does after the death of a part takes longer than its own death.
VICTIMS = (PYTHON,) * 8 + (NINJA, CLANG)
AT_ONCE = 3
LATEST_S = 0.8  # headers and kernels are under way by then, on a machine with two busy cores


@dataclass
class Lane:
    """One store, and the builds that are killed in it one after another."""

    store: Path
    lender: Path  # has the precompiled headers
    chance: random.Random
    told: list[str] = field(default_factory=list)
    _pid: int = 0
    _round: int = 0
    _kill_at: float = 0.0
    _victim: str = PYTHON

    @property
    def factors(self) -> range:
        return range(100 + AT_ONCE * self._round, 100 + AT_ONCE * (self._round + 1))

    def begin(self, number: int) -> None:
        """Start a build in a copy of this process, which has imported everything already."""
        self._round = number
        self._victim = self.chance.choice(VICTIMS)
        delay = self.chance.uniform(0.05, LATEST_S)
        self.told.append(f"{number}: {self._victim} after {delay:.3f} s")
        if number % 10 == 0:  # also the headers are to be killed
            shutil.rmtree(self.store, ignore_errors=True)
        elif number % 10 == 1:  # no build lives long enough to precompile them, and also kernels are to be killed
            lend_headers(self.lender, self.store)
        self._kill_at = time.monotonic() + delay
        self._pid = os.fork()
        if self._pid == 0:
            _build_and_exit(self.store, self.factors)

    def strike(self) -> None:
        time.sleep(max(0.0, self._kill_at - time.monotonic()))
        if self._victim == PYTHON:
            os.kill(self._pid, signal.SIGKILL)
        else:
            ninjas = (pid for pid in descendants(self._pid) if program_of(pid).startswith(NINJA))
            parts = compilers_of(self._pid) if self._victim == CLANG else list(ninjas)
            for pid in parts[:1]:  # there may be none at this instant
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code == (-signal.SIGKILL if self._victim == PYTHON else 0), self.told[-1]
        eventually(lambda: not at_work_in(self.store), 5)


def _build_and_exit(store: Path, factors: range) -> None:
    try:
        build(store, factors, jobs=1)
        os._exit(0)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(1)


@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.deep)])
def test_builds_killed_at_any_instant(rounds: int, tmp_path: Path, shared_store: Path) -> None:
    """Two at a time: 6 kills, or 200."""
    lanes = [Lane(tmp_path / f"lane-{number}", shared_store, random.Random(SEED + number)) for number in range(2)]
    try:
        for number in range(rounds):
            for lane in lanes:
                lane.begin(number)
            for lane in sorted(lanes, key=lambda lane: lane._kill_at):
                lane.strike()
            for lane in lanes:
                lane.end()
    finally:
        print(f"seed {SEED}", *(f"{lane.store.name} {line}" for lane in lanes for line in lane.told), sep="\n")
    for lane in lanes:
        started = time.monotonic()
        built = build(lane.store, range(100 + AT_ONCE * (rounds - 3), 100 + AT_ONCE * rounds))
        assert built.failures == {}
        assert all_load(built)
        assert time.monotonic() - started < 60, "a lock of a dead process was waited for"
        sound(lane.store)
        assert not (lane.store / "v1" / "corrupt").exists()
