"""A pytest plugin that runs each case under a limit of CPU time, in forked processes, and writes records.

run_triton_tests.py loads it. This process imports and collects once, and forks a worker for each batch of cases. A
worker that is killed loses one case; the next worker goes on after it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from triton_records import FAILED, PASSED, SKIPPED, TIME, Record, Run, order_cases

BATCH = 100  # cases of a worker: forking and warming up takes some seconds
PATIENCE = 15  # a busy machine, or a worker that waits: seconds for each second of CPU time
DETAIL = 1000  # characters of an error


@dataclass(frozen=True)
class Plan:
    """What to run, until `until` (seconds since the epoch). Cases in `done` have a record that counts."""

    run: Run
    seed: int
    until: float
    jobs: int
    limit_s: int
    records: Path
    done: frozenset[str]

    def write(self, file: Path) -> None:
        """Write the plan for the process that runs it."""
        file.write_text(json.dumps({**asdict(self), "records": str(self.records), "done": sorted(self.done)}))


def read_plan(file: Path) -> Plan:
    """Read the plan of a run."""
    given = json.loads(file.read_text())
    changed = {"run": Run(**given["run"]), "records": Path(given["records"]), "done": frozenset(given["done"])}
    return Plan(**{**given, **changed})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--case-plan", type=Path, required=True, help="the file that run_triton_tests.py wrote")


def pytest_configure(config: pytest.Config) -> None:
    """Let torch answer as one for the GPU does, before the tests are imported."""
    if gpu := config.getoption("triton_gpu", None):
        from triton_torch import replace_cuda

        replace_cuda(gpu)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the cases that have no record yet."""
    if session.testsfailed:
        raise session.Interrupted(f"{session.testsfailed} files could not be imported")
    plan = read_plan(session.config.getoption("--case-plan"))
    items = {item.nodeid: item for item in session.items}
    wanted = [items[case] for case in order_cases(items, plan.seed) if case not in plan.done]
    _warm_up(session.config)
    scheduler = _Scheduler(plan, wanted)
    scheduler.run()
    gc.unfreeze()
    print(f"{plan.run.gpu}: {scheduler.finished} cases run, {len(wanted) - scheduler.finished} of {len(items)} left")
    return True


def _warm_up(config: pytest.Config) -> None:
    """Do once what every worker would do, which takes 3 s of CPU time."""
    if config.getoption("triton_gpu", None):
        import torch
        from triton.runtime.cache import triton_key

        from tilewright.emulator.native.engine_library import find_engine

        triton_key()  # a digest of Triton's own files
        find_engine()
        importlib.import_module("tilewright.emulator.native.lower")
        torch.testing.assert_close(torch.zeros(1), torch.zeros(1))  # its first call imports much
    gc.collect()
    gc.freeze()  # a worker does not copy pages for counting references


@dataclass
class _Worker:
    """A forked process that runs `cases`, of which it has finished `position`."""

    pid: int
    pipe: int
    cases: Sequence[pytest.Item]
    position: int = 0
    running: bool = False
    since: float = field(default_factory=time.monotonic)
    buffer: bytes = b""
    cpu_s: float = 0.0  # when the running case began


class _Scheduler:
    """Gives batches to workers and writes what they tell."""

    def __init__(self, plan: Plan, cases: Sequence[pytest.Item]) -> None:
        self._plan = plan
        self._batches = deque(cases[at : at + BATCH] for at in range(0, len(cases), BATCH))
        self._workers: dict[int, _Worker] = {}
        self.finished = 0

    def run(self) -> None:
        """Run until there are no more cases, or no more time."""
        with contextlib.ExitStack() as stack:
            self._records = stack.enter_context(self._plan.records.open("a", encoding="utf-8"))
            # Cases share kernels. A killed worker leaves no incomplete file, because Triton renames finished ones.
            self._cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="triton-cases-"))
            stack.callback(self._kill_workers)
            while True:
                while self._batches and len(self._workers) < self._plan.jobs and time.time() < self._plan.until:
                    self._start(self._batches.popleft())
                if not self._workers:
                    return
                for pipe in select.select(list(self._workers), [], [], 1.0)[0]:
                    self._read(self._workers[pipe])
                self._kill_waiting()

    def _start(self, cases: Sequence[pytest.Item]) -> None:
        receive, send = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            for worker in self._workers.values():
                os.close(worker.pipe)
            os.close(receive)
            _work(cases, send, self._plan, self._cache)
        os.close(send)
        self._workers[receive] = _Worker(pid, receive, cases)

    def _read(self, worker: _Worker) -> None:
        data = os.read(worker.pipe, 1 << 16)
        if not data:
            self._reap(worker)
            return
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            worker.since = time.monotonic()
            worker.running = "began_s" in told
            if worker.running:
                worker.cpu_s = told["began_s"]
            else:
                self._record(worker, **told)

    def _reap(self, worker: _Worker) -> None:
        """Record the case that killed its worker, and give the cases after it back."""
        _, status, usage = os.wait4(worker.pid, 0)
        os.close(worker.pipe)
        del self._workers[worker.pipe]
        code = os.waitstatus_to_exitcode(status)
        if worker.running:
            late = code in (-signal.SIGXCPU, -signal.SIGKILL)
            what = f"more than {self._plan.limit_s} s of CPU time" if late else f"the process ended with {code}"
            cpu_s = round(usage.ru_utime + usage.ru_stime - worker.cpu_s, 2)
            self._record(worker, TIME if late else FAILED, cpu_s, what, "")
        elif code != 0:
            raise RuntimeError(f"a worker ended with {code} between two cases")
        if worker.position < len(worker.cases):
            self._batches.appendleft(worker.cases[worker.position :])

    def _record(self, worker: _Worker, outcome: str, cpu_s: float, error: str, detail: str) -> None:
        case = worker.cases[worker.position].nodeid
        self._records.write(Record(self._plan.run, case, outcome, cpu_s, error, detail).to_json() + "\n")
        self._records.flush()
        worker.position += 1
        self.finished += 1

    def _kill_waiting(self) -> None:
        """Kill a worker whose case does not end and uses no CPU time."""
        for worker in self._workers.values():
            if worker.running and time.monotonic() - worker.since > PATIENCE * self._plan.limit_s:
                os.kill(worker.pid, signal.SIGKILL)

    def _kill_workers(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


def _work(cases: Sequence[pytest.Item], pipe: int, plan: Plan, cache: str) -> None:
    """Run cases and tell their outcomes, in a forked process, which ends here."""
    code = 1
    try:
        os.environ["TRITON_CACHE_DIR"] = cache
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        reports: list[pytest.TestReport] = []
        cases[0].config.pluginmanager.register(_Collector(reports))
        with _replace_device(cases[0].config):
            for case in cases:
                if time.time() >= plan.until:
                    break
                _run_case(case, pipe, plan.limit_s, reports)
        code = 0
    finally:
        os._exit(code)  # nothing of this process belongs to the run any more


def _run_case(case: pytest.Item, pipe: int, limit_s: int, reports: list[pytest.TestReport]) -> None:
    began = _count_cpu_s(resource.RUSAGE_SELF)
    whole = began + _count_cpu_s(resource.RUSAGE_CHILDREN)
    _tell(pipe, {"began_s": began})
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    # The kernel ends the process: a handler in Python would wait for the end of a compilation or a launch.
    resource.setrlimit(resource.RLIMIT_CPU, (int(began) + limit_s + 1, hard))
    reports.clear()
    case.config.hook.pytest_runtest_protocol(item=case, nextitem=None)
    cpu_s = _count_cpu_s(resource.RUSAGE_SELF) + _count_cpu_s(resource.RUSAGE_CHILDREN) - whole
    outcome, error = judge(reports)
    _tell(pipe, {"outcome": outcome, "cpu_s": round(cpu_s, 2), **error})


def _tell(pipe: int, what: dict[str, Any]) -> None:
    data = json.dumps(what).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]


def _count_cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


@dataclass(eq=False)
class _Collector:
    """Keeps the reports of a case: of its setup, its call and its end."""

    reports: list[pytest.TestReport]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


def judge(reports: Sequence[pytest.TestReport]) -> tuple[str, dict[str, str]]:
    """Return the outcome of a case, and `error` and `detail`: of the first failure, else of a skip."""
    for report in reports:
        if report.failed:
            said = _describe_failure(report)
            return FAILED, {"error": said.partition("\n")[0][:300], "detail": said[:DETAIL]}
    for report in reports:
        if report.skipped:
            expected = getattr(report, "wasxfail", None)
            place = report.longrepr
            text = f"expected to fail: {expected}" if expected is not None else ""
            if expected is None and isinstance(place, tuple):
                text = place[2].removeprefix("Skipped: ")
            return SKIPPED, {"error": text[:300], "detail": ""}
    return PASSED, {"error": "", "detail": ""}


def _describe_failure(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else crash.message).strip()


@contextlib.contextmanager
def _replace_device(config: pytest.Config) -> Iterator[None]:
    if not config.getoption("triton_gpu", None):
        yield
        return
    from triton_torch import CudaInHostMemory

    with CudaInHostMemory():
        yield
