"""Measure the cost of a task on the cluster engine compared with bare Ray, and the memory for 100,000 queued tasks.

    python tools/bench_cluster.py                      # a table, in about two minutes
    python tools/bench_cluster.py --out docs/bench-cluster.md

Three Ray nodes run on this machine. The tasks do nothing, so only the engine costs time: coordinator, Ray, the
device's actor, and the worker process. Bare Ray is the same number of actors that return their argument, without
book-keeping and worker processes. Rounds are interleaved, and the lowest figure counts. The limit is on the CPU time of
all processes together, which other load on this machine disturbs least.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep_tests import describe_run
from ray_nodes import ray_nodes
from tilewright.base.events import Notice, add_listener
from tilewright.bench.cluster.executor import ClusterExecutor
from tilewright.bench.cluster.ledger import ChunkSizes
from tilewright.bench.cluster.session import import_ray
from tilewright.bench.executor import WorkerConfig, WorkItem
from tilewright.bench.journal import Journal
from tilewright.bench.plan import TEAM
from tilewright.bench.record import Record, Task

NODES = 3
MAX_SLOTS = 4  # of the clusters that this program is used on
DEVICE = "replay:idle"
RUNNER = "idle_runner:idle"
LIMIT = 1.3  # times bare Ray
# The memory limit of the coordinator with 100,000 queued tasks: 8,192 tasks in memory with 1 to 2 KB, and Ray's own.
QUEUED, MEMORY_LIMIT_MB = 100_000, 64


@dataclass(frozen=True)
class Row:
    """A figure and its name."""

    what: str
    figure: str


def make_tasks(count: int) -> Iterator[WorkItem]:
    """Make tasks with names of realistic length, in the order of a plan, one at a time."""
    kernel = "gemm_gfx942_fp16_rcr_128x128x32_2x2x1_32x32x16_compv4_cshuffle_intrawave_{:03d}_0123456789ab"
    problem = '{{"dtype":"fp16","k":4096,"layout":"rcr","m":{},"n":4096,"split_k":1}}'
    for index in range(count):
        yield WorkItem(
            Task(
                op="gemm",
                arch="gfx942",
                kernel=kernel.format(index % TEAM),
                problem=problem.format(index // TEAM),
                device=DEVICE,
            )
        )


class Queue:
    """Tasks, and the number of tasks taken so far."""

    def __init__(self, count: int) -> None:
        self._count, self.taken = count, 0

    def __iter__(self) -> Iterator[WorkItem]:
        for work in make_tasks(self._count):
            self.taken += 1
            yield work


@dataclass(frozen=True)
class Cost:
    """Microseconds per task: wall time, CPU time of all processes, and CPU time of this one."""

    wall: float
    cpu: float
    own: float


class Clock:
    """Measures the time since its creation."""

    def __init__(self) -> None:
        self._wall, self._cpu, self._own = time.perf_counter(), read_family_cpu_s(), time.process_time()

    def measure(self, count: int) -> Cost:
        spent = (time.perf_counter() - self._wall, read_family_cpu_s() - self._cpu, time.process_time() - self._own)
        return Cost(*(seconds / count * 1e6 for seconds in spent))


def read_family_cpu_s() -> float:
    """Sum up the CPU seconds of this process and its descendants: Ray's servers, actors, and their workers."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
        pid = int(folder.name)
        spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        children.setdefault(int(fields[1]), []).append(pid)
    family = [os.getpid()]
    for pid in family:
        family += children.get(pid, [])
    return sum(spent[pid] for pid in family)


class Echo:
    """Returns its argument."""

    def run(self, sent: bytes) -> bytes:
        return sent


def _encode_tasks(count: int) -> Iterator[bytes]:
    """Encode the same tasks as bytes, which are cheapest for Ray to send."""
    for work in make_tasks(count):
        yield json.dumps(vars(work.task)).encode()


class BareRay:
    """Actors that return their argument."""

    def __init__(self) -> None:
        self._ray = import_ray()
        actor = self._ray.remote(Echo).options(num_cpus=1)
        self._actors = [actor.remote() for _ in range(NODES)]
        self._ray.get([each.run.remote(b"") for each in self._actors])

    def call_at_once(self, count: int) -> Cost:
        """Start all calls at once, which is fastest and needs memory for all of them."""
        clock = Clock()
        self._ray.get([self._actors[index % NODES].run.remote(sent) for index, sent in enumerate(_encode_tasks(count))])
        return clock.measure(count)

    def call_bounded(self, count: int, window: int = 64) -> Cost:
        """Keep at most `window` calls pending, as a program with many tasks must."""
        clock = Clock()
        pending: list[Any] = []
        for index, sent in enumerate(_encode_tasks(count)):
            pending.append(self._actors[index % NODES].run.remote(sent))
            if len(pending) >= window:
                done, pending = self._ray.wait(pending, num_returns=window // 2)
                self._ray.get(done)
        self._ray.get(pending)
        return clock.measure(count)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)


def run_bare_ray(count: int) -> Cost:
    """Measure the cost of a call if all calls start at once."""
    alone = BareRay()
    try:
        return alone.call_at_once(count)
    finally:
        alone.close()


@dataclass(frozen=True)
class EngineRun:
    """The cost of one run of the engine, measured while all devices are busy."""

    cost: Cost
    grown_mb: float
    held: int  # the most tasks that were taken and had no record yet
    records: list[Record]


def run_engine(count: int, sizes: ChunkSizes | None = None, keep: int = 0) -> EngineRun:
    """Run tasks that do nothing, and measure between two moments at which all devices are busy.

    At the first moment, processes have started and chunks have grown. About as many finished tasks are not reported yet
    at both moments, so they cancel out; short runs vary more.
    """
    sizes = sizes or ChunkSizes()
    edge = max(count // 10, MAX_SLOTS * sizes.ahead * sizes.chunk_most)
    if count < 4 * edge:
        sys.exit(f"{count:,} tasks are too few to measure: use at least {4 * edge:,}")
    executor = ClusterExecutor({DEVICE: "gfx942"}, WorkerConfig(settings={}, runner=RUNNER), sizes=sizes)
    kept: list[Record] = []
    gc.collect()
    before = most = _resident_mb()
    clock, done, held = Clock(), 0, 0
    queue = Queue(count)
    try:
        for record in executor.run(queue):
            held = max(held, queue.taken - done)
            done += 1
            if not record.ok:
                sys.exit(f"a task that does nothing failed: {record.message}")
            if done == edge:
                clock = Clock()
            elif done == count - edge:
                cost = clock.measure(count - 2 * edge)
            if len(kept) < keep:
                kept.append(record)
            if done % 5000 == 0:
                most = max(most, _resident_mb())
    finally:
        executor.close()
    if done != count:
        sys.exit(f"{count:,} tasks gave {done:,} records")
    return EngineRun(cost, max(most, _resident_mb()) - before, held, kept)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure_queued_bytes(count: int = 20_000) -> float:
    """Measure the memory of a queued task."""
    gc.collect()
    before = _resident_mb()
    waiting = list(make_tasks(count))
    for work in waiting:
        assert work.task.key  # the key is cached in the task
    return (_resident_mb() - before) * 2**20 / len(waiting)


def measure_journal(records: list[Record]) -> list[Row]:
    """Measure the cost of journalling for each fsync policy."""
    rows = []
    for policy in ("record", "batch", "never"):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            begun = time.perf_counter()
            with Journal(folder, "w", fsync=policy) as journal:
                for record in records:
                    journal.append(record)
            seconds = time.perf_counter() - begun
            size = sum(path.stat().st_size for path in Path(folder).glob("*.jsonl"))
        rows.append(Row(f"journal, fsync {policy}", f"{seconds / len(records) * 1e6:,.0f} µs a record"))
    return [Row("journal", f"{size / len(records):,.0f} bytes a record"), *rows]


def measure(rounds: int, count: int, queued: int) -> tuple[list[Row], list[str]]:
    """Measure everything. Return the figures, and a sentence for each exceeded limit."""
    at_once, bounded, ours, single = [], [], [], []
    with ray_nodes(*[1] * NODES):
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            alone = BareRay()
            at_once.append(alone.call_at_once(count // 5))
            bounded.append(alone.call_bounded(count // 5))
            alone.close()
            ours.append(run_engine(count).cost)
            single.append(run_engine(count // 10, ChunkSizes(chunk_most=1, ahead=16)).cost)
        large = run_engine(queued, keep=2000)
    ratio = compare_costs(ours, at_once).cpu
    rows = [
        Row("bare Ray, all calls at once", _format_cost(at_once)),
        Row("bare Ray, 64 calls in flight", _format_cost(bounded)),
        Row("engine", _format_cost(ours)),
        Row("engine compared with bare Ray with 64 in flight", _format_ratio(ours, bounded)),
        Row("engine compared with bare Ray, all at once", f"{_format_ratio(ours, at_once)} (limit {LIMIT}×)"),
        Row("engine, one task a message", _format_cost(single)),
        Row("coordinator alone", f"{_find_least(ours).own:,.0f} µs of CPU a task"),
        Row(f"{queued:,} queued tasks", _format_cost([large.cost])),
        Row("the coordinator grows by", f"{large.grown_mb:.0f} MB (limit {MEMORY_LIMIT_MB} MB)"),
        Row("queued tasks in memory at once", f"{large.held:,} at most"),
        Row("a task that waits in memory", f"{measure_queued_bytes():,.0f} bytes"),
        *measure_journal(large.records),
    ]
    over = []
    if ratio > LIMIT:
        over.append(f"a task costs {ratio:.2f}× as much as on bare Ray; the limit is {LIMIT}×")
    if large.grown_mb > MEMORY_LIMIT_MB:
        over.append(f"{queued:,} queued tasks take {large.grown_mb:.0f} MB; the limit is {MEMORY_LIMIT_MB} MB")
    return rows, over


def _find_least(costs: list[Cost]) -> Cost:
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs), min(c.own for c in costs))


def _format_cost(costs: list[Cost]) -> str:
    least = _find_least(costs)
    return f"{least.wall:,.0f} µs a task, {least.cpu:,.0f} µs of CPU"


def compare_costs(ours: list[Cost], others: list[Cost]) -> Cost:
    """Return the ratios of the lowest costs."""
    mine, theirs = _find_least(ours), _find_least(others)
    return Cost(mine.wall / theirs.wall, mine.cpu / theirs.cpu, mine.own / theirs.own)


def _format_ratio(ours: list[Cost], others: list[Cost]) -> str:
    found = compare_costs(ours, others)
    return f"{found.wall:.2f}× the time, {found.cpu:.2f}× the CPU"


def format_page(rows: list[Row]) -> str:
    """Format the figures as a page."""
    lines = [
        "# Overhead per sweep task",
        "",
        f"`make bench-cluster` writes this page. {NODES} Ray {import_ray().__version__} nodes on {os.cpu_count()} "
        f"cores ({platform.machine()}), Python {platform.python_version()}.",
        describe_run(),
        "The tasks do nothing. Bare Ray makes one call for each, while the engine sends them in chunks. For your own "
        "large",
        "sweeps, see [scaling](scaling.md).",
        "",
        "| item | figure |",
        "|---|---|",
        *(f"| {row.what} | {row.figure} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main(show: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--tasks",
        type=int,
        default=40_000,
        help="tasks of the engine in each round; bare Ray, which varies less, gets a fifth of them",
    )
    parser.add_argument("--queued", type=int, default=QUEUED)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with add_listener(lambda event: show(str(event)) if isinstance(event, Notice) else None):
        rows, over = measure(options.rounds, options.tasks, options.queued)
    for row in rows:
        show(f"{row.what:48} {row.figure}")
    if options.out is not None:
        options.out.write_text(format_page(rows))
    for line in over:
        show(line)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
