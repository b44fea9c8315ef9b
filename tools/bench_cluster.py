"""What a task costs on the cluster's engine compared with bare Ray, in one run; and what 100,000 queued tasks take.

    python tools/bench_cluster.py                      # a table, some two minutes
    python tools/bench_cluster.py --out docs/bench-cluster.md

Three nodes of Ray on this machine. The tasks do nothing, so that what remains is the engine: coordinator, Ray, the
device's actor, and the worker process that may be killed. Bare Ray is the same number of actors that give back what
they are sent: no book-keeping, no process that may be killed. Rounds are interleaved, and the least of each counts. The
limit is on CPU of all processes together, which others on this machine disturb least.
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
SEATS_MOST = 4  # of the clusters that this is used on
DEVICE = "replay:idle"
RUNNER = "idle_runner:idle"
LIMIT = 1.3  # times bare Ray
# What the coordinator may grow by with 100,000 queued tasks: 8,192 held ones of 1 to 2 KB, and what Ray keeps itself.
QUEUED, MEMORY_LIMIT_MB = 100_000, 64


@dataclass(frozen=True)
class Row:
    """One figure and what it is of."""

    what: str
    figure: str


def works(count: int) -> Iterator[WorkItem]:
    """Tasks with names as long as usual, in the order of a plan, made when they are asked for."""
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
    """Those tasks, and how many of them were asked for."""

    def __init__(self, count: int) -> None:
        self._count, self.asked = count, 0

    def __iter__(self) -> Iterator[WorkItem]:
        for work in works(self._count):
            self.asked += 1
            yield work


@dataclass(frozen=True)
class Cost:
    """Microseconds of one task: on the wall's clock, of CPU in all processes, and of CPU in this one."""

    wall: float
    cpu: float
    own: float


class Clock:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu, self._own = time.perf_counter(), _all_cpu_s(), time.process_time()

    def cost(self, count: int) -> Cost:
        spent = (time.perf_counter() - self._wall, _all_cpu_s() - self._cpu, time.process_time() - self._own)
        return Cost(*(seconds / count * 1e6 for seconds in spent))


def _all_cpu_s() -> float:
    """CPU seconds of this process and of all that it started: Ray's servers, actors, and their workers."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended just now
            continue
        pid = int(folder.name)
        spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        children.setdefault(int(fields[1]), []).append(pid)
    family = [os.getpid()]
    for pid in family:
        family += children.get(pid, [])
    return sum(spent[pid] for pid in family)


class Echo:
    """Gives back what it is sent."""

    def run(self, sent: bytes) -> bytes:
        return sent


def _plain(count: int) -> Iterator[bytes]:
    """The same tasks as bytes, which Ray sends with the least effort."""
    for work in works(count):
        yield json.dumps(vars(work.task)).encode()


class BareRay:
    """Actors that give back what they are sent."""

    def __init__(self) -> None:
        self._ray = import_ray()
        actor = self._ray.remote(Echo).options(num_cpus=1)
        self._actors = [actor.remote() for _ in range(NODES)]
        self._ray.get([each.run.remote(b"") for each in self._actors])

    def at_once(self, count: int) -> Cost:
        """All calls at once, which is the fastest. It takes memory for all of them."""
        clock = Clock()
        self._ray.get([self._actors[index % NODES].run.remote(sent) for index, sent in enumerate(_plain(count))])
        return clock.cost(count)

    def bounded(self, count: int, window: int = 64) -> Cost:
        """So many calls in flight, as a program must do that has more than fits."""
        clock = Clock()
        flying: list[Any] = []
        for index, sent in enumerate(_plain(count)):
            flying.append(self._actors[index % NODES].run.remote(sent))
            if len(flying) >= window:
                done, flying = self._ray.wait(flying, num_returns=window // 2)
                self._ray.get(done)
        self._ray.get(flying)
        return clock.cost(count)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)


def bare_ray(count: int) -> Cost:
    """What a call costs with all of them at once."""
    alone = BareRay()
    try:
        return alone.at_once(count)
    finally:
        alone.close()


@dataclass(frozen=True)
class Engine:
    """What one run of the engine took, from the moment on that all devices work."""

    cost: Cost
    grown_mb: float
    held: int  # tasks that were asked for and not answered yet, at most
    records: list[Record]


def engine(count: int, sizes: ChunkSizes | None = None, keep: int = 0) -> Engine:
    """Run tasks that do nothing, and measure from one moment to another, at both of which devices are busy.

    At the first, processes have started and chunks have grown. What is done at devices and not yet told is as much at
    the one as at the other, so that neither counts; a run that is short beside that varies by so much.
    """
    sizes = sizes or ChunkSizes()
    edge = max(count // 10, SEATS_MOST * sizes.ahead * sizes.chunk_most)
    if count < 4 * edge:
        sys.exit(f"{count:,} tasks are too few to measure: {4 * edge:,} is the least")
    executor = ClusterExecutor({DEVICE: "gfx942"}, WorkerConfig(settings={}, runner=RUNNER), sizes=sizes)
    kept: list[Record] = []
    gc.collect()
    before = most = _resident_mb()
    clock, done, held = Clock(), 0, 0
    queue = Queue(count)
    try:
        for record in executor.run(queue):
            held = max(held, queue.asked - done)
            done += 1
            if not record.ok:
                sys.exit(f"a task that does nothing failed: {record.message}")
            if done == edge:
                clock = Clock()
            elif done == count - edge:
                cost = clock.cost(count - 2 * edge)
            if len(kept) < keep:
                kept.append(record)
            if done % 5000 == 0:
                most = max(most, _resident_mb())
    finally:
        executor.close()
    if done != count:
        sys.exit(f"{count:,} tasks gave {done:,} records")
    return Engine(cost, max(most, _resident_mb()) - before, held, kept)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def queued_bytes(count: int = 20_000) -> float:
    """What a task takes that waits in memory."""
    gc.collect()
    before = _resident_mb()
    waiting = list(works(count))
    for work in waiting:
        assert work.task.key  # it is kept with the task
    return (_resident_mb() - before) * 2**20 / len(waiting)


def journal_rows(records: list[Record]) -> list[Row]:
    """What journalling costs, for each policy."""
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
    """All figures, and what is over its limit."""
    at_once, bounded, ours, single = [], [], [], []
    with ray_nodes(*[1] * NODES):
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            alone = BareRay()
            at_once.append(alone.at_once(count // 5))
            bounded.append(alone.bounded(count // 5))
            alone.close()
            ours.append(engine(count).cost)
            single.append(engine(count // 10, ChunkSizes(chunk_most=1, ahead=16)).cost)
        large = engine(queued, keep=2000)
    ratio = beside(ours, at_once).cpu
    rows = [
        Row("bare Ray, all calls at once", _told(at_once)),
        Row("bare Ray, 64 calls in flight", _told(bounded)),
        Row("engine", _told(ours)),
        Row("engine compared with bare Ray with 64 in flight", _times(ours, bounded)),
        Row("engine compared with bare Ray, all at once", f"{_times(ours, at_once)} (limit {LIMIT}×)"),
        Row("engine, one task a message", _told(single)),
        Row("coordinator alone", f"{_least(ours).own:,.0f} µs of CPU a task"),
        Row(f"{queued:,} queued tasks", _told([large.cost])),
        Row("the coordinator grows by", f"{large.grown_mb:.0f} MB (limit {MEMORY_LIMIT_MB} MB)"),
        Row("queued tasks in memory at once", f"{large.held:,} at most"),
        Row("a task that waits in memory", f"{queued_bytes():,.0f} bytes"),
        *journal_rows(large.records),
    ]
    over = []
    if ratio > LIMIT:
        over.append(f"a task costs {ratio:.2f}× what it costs bare Ray; {LIMIT}× are allowed")
    if large.grown_mb > MEMORY_LIMIT_MB:
        over.append(f"{queued:,} queued tasks take {large.grown_mb:.0f} MB; {MEMORY_LIMIT_MB} MB are allowed")
    return rows, over


def _least(costs: list[Cost]) -> Cost:
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs), min(c.own for c in costs))


def _told(costs: list[Cost]) -> str:
    least = _least(costs)
    return f"{least.wall:,.0f} µs a task, {least.cpu:,.0f} µs of CPU"


def beside(ours: list[Cost], others: list[Cost]) -> Cost:
    """How many times as much: the least of some rounds beside the least of others."""
    mine, theirs = _least(ours), _least(others)
    return Cost(mine.wall / theirs.wall, mine.cpu / theirs.cpu, mine.own / theirs.own)


def _times(ours: list[Cost], others: list[Cost]) -> str:
    found = beside(ours, others)
    return f"{found.wall:.2f}× the time, {found.cpu:.2f}× the CPU"


def page(rows: list[Row]) -> str:
    """The figures as a document."""
    lines = [
        "# Overhead per sweep task",
        "",
        f"`make bench-cluster` writes this page. {NODES} Ray {import_ray().__version__} nodes on {os.cpu_count()} "
        f"cores ({platform.machine()}), Python {platform.python_version()}.",
        "The tasks do nothing. For your own large sweeps, see [scaling](scaling.md).",
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
        help="of the engine in each round; bare Ray, which varies less, has a fifth of them",
    )
    parser.add_argument("--queued", type=int, default=QUEUED)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with add_listener(lambda event: show(str(event)) if isinstance(event, Notice) else None):
        rows, over = measure(asked.rounds, asked.tasks, asked.queued)
    for row in rows:
        show(f"{row.what:48} {row.figure}")
    if asked.out is not None:
        asked.out.write_text(page(rows))
    for line in over:
        show(line)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
