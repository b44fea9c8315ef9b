"""Sweeps on a real Ray cluster of two nodes on this machine: nodes die and come, and no result is lost."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from built_kernels import STORE

pytest.importorskip("ray", reason="needs the extra `cluster`")

from sweeping import ARCH, BUILT, scale_kernels, scale_plan, scale_problems
from swept_kernels import SWEPT

import tilewright as tw
from bench_cluster import LIMIT, MEMORY_LIMIT_MB, QUEUED, compare_costs, run_bare_ray
from bench_cluster import run_engine as engine_cost
from ray_nodes import __file__ as ray_nodes_file
from ray_nodes import add_node, kill_node, ray_nodes
from tilewright.base.errors import ClusterError
from tilewright.base.events import Notice, add_listener
from tilewright.bench.cluster import executor as cluster_engine
from tilewright.bench.cluster.executor import ClusterExecutor
from tilewright.bench.cluster.ledger import ChunkSizes
from tilewright.bench.cluster.session import probe_cluster_gpu
from tilewright.bench.executor import ArtifactRef, WorkerConfig, WorkItem
from tilewright.bench.journal import read_journal
from tilewright.bench.local import LocalExecutor
from tilewright.bench.plan import SweepPlan
from tilewright.bench.quarantine import Quarantine
from tilewright.bench.record import Record, Task
from tilewright.bench.sweep import SweepOptions, run_plan
from tilewright.bench.versions import format_versions
from tilewright.building.builder import build_kernels
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.hip_shim.shim_library import build_shim

pytestmark = [pytest.mark.service, pytest.mark.slow]
CPUS = (2, 1)
SEATS = sum(CPUS)
DEVICES = {"replay:idle": "gfx942"}
Outcome = dict[str, tuple[str, str, dict[str, int]]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the store of each node."""
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def cluster(plugin: Path, stores: Path) -> Iterator[tuple[Any, list[Any]]]:
    """The nodes know the op `scale` as if its package were installed there, and the runners of tests."""
    path = os.pathsep.join([str(plugin), str(Path(ray_nodes_file).parent), str(Path(__file__).parent)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("TILEWRIGHT_STORE", "")  # so that it is put back afterwards
        with ray_nodes(*CPUS, stores=stores) as started:
            patch.delenv("TILEWRIGHT_STORE")  # this process has the store of all tests
            yield started


def make_tasks(count: int) -> Iterator[WorkItem]:
    for number in range(count):
        task = Task(
            op="gemm", arch="gfx942", kernel=f"k{number // 50}", problem=f'{{"m":{number}}}', device="replay:idle"
        )
        yield WorkItem(task)


def executor(nap_s: float = 0.0, runner: str = "idle_runner:idle", **options: Any) -> ClusterExecutor:
    return ClusterExecutor(DEVICES, WorkerConfig(settings={"nap_s": nap_s}, runner=runner), **options)


def carried_out(engine: ClusterExecutor, count: int, at: dict[int, Callable[[], object]] | None = None) -> list[Record]:
    """The records, and something done when so many of them are there."""
    records = []
    try:
        for record in engine.run(make_tasks(count)):
            records.append(record)
            if at and len(records) in at:
                at[len(records)]()
    finally:
        engine.close()
    return records


def outcome(records: list[Record]) -> Outcome:
    """What must be equal in two runs: all but who measured it and when. Each task once."""
    found = {record.key: (record.status, record.message, dict(record.counters)) for record in records}
    assert len(found) == len(records), "a task has two results"
    return found


def test_a_node_killed_in_the_middle_changes_nothing_and_one_that_joins_is_used(cluster, monkeypatch) -> None:
    """The result set of a run in which a node dies, and later one joins, equals that of an undisturbed run."""
    monkeypatch.setattr(cluster_engine, "LOOK_S", 0.2)  # so that the node that joins is seen before all is done
    started, nodes = cluster
    undisturbed = outcome(carried_out(executor(nap_s=0.005), 600))
    notices: list[str] = []
    joined: list[Any] = []
    killed = nodes.pop()
    with add_listener(lambda event: notices.append(event.message) if isinstance(event, Notice) else None):
        records = carried_out(
            executor(nap_s=0.005),
            600,
            {150: lambda: kill_node(started, killed), 300: lambda: joined.append(add_node(started, cpus=1))},
        )
    nodes += joined
    assert outcome(records) == undisturbed
    assert len(undisturbed) == 600
    assert {status for status, _, _ in undisturbed.values()} == {"ok"}
    assert any(killed.node_id[:8] in notice for notice in notices), notices
    assert any("joined" in notice for notice in notices), notices


def test_a_stop_finishes_what_is_out(cluster) -> None:
    """That the rest can follow is shown with the command (test_cli_sweep.py)."""
    engine = executor(nap_s=0.01, sizes=ChunkSizes(chunk_s=0.1))
    found = carried_out(engine, 800, {60: lambda: threading.Thread(target=engine.stop).start()})
    assert 60 <= len(outcome(found)) < 400


def test_the_quarantine_is_asked_before_work_goes_out(cluster) -> None:
    kept_away = Quarantine(1)
    engine = executor(runner="idle_runner:wrong", quarantine=kept_away)
    records = []
    for record in engine.run(make_tasks(40)):
        records.append(record)
        kept_away.count_record(record)
    engine.close()
    statuses = [record.status for record in records]
    assert len(outcome(records)) == 40
    assert set(statuses) == {"wrong", "quarantined"}
    assert statuses.count("wrong") <= 2 * SEATS


class Unreadable(WorkItem):
    """Work that no node can take out of its message."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def test_one_bad_task_costs_one_record_and_no_device(cluster, monkeypatch) -> None:
    """Garbage from its worker, an actor that is killed with it, a message that cannot be read: 3 of 60 tasks."""
    monkeypatch.setattr(cluster_engine, "LOOK_S", 0.2)
    tasks = list(make_tasks(60))
    tasks[50] = Unreadable(tasks[50].task)
    worker_config = WorkerConfig(settings={"garbage": 30, "kills": 40}, runner="rambling_runner:poisoned")
    engine = ClusterExecutor(DEVICES, worker_config, quarantine=Quarantine(0))
    try:
        records = list(engine.run(tasks))
    finally:
        engine.close()
    failed = {record.task.problem: record for record in records if not record.ok}
    assert len(outcome(records)) == 60
    assert {text: record.status for text, record in failed.items()} == dict.fromkeys(
        ['{"m":30}', '{"m":40}', '{"m":50}'], "crashed"
    )
    assert "the worker sent" in failed['{"m":30}'].message
    assert "3 devices of the cluster were lost while they measured it" in failed['{"m":40}'].message
    assert "no device of the cluster could process it" in failed['{"m":50}'].message
    assert not any(map(engine._is_excluded, engine._failures))


def test_nodes_with_other_software_end_the_sweep_with_the_reason(cluster) -> None:
    engine = executor()
    task = Task(
        op="gemm", arch="gfx942", kernel="k", problem="{}", device="replay:idle", versions='{"tilewright":"0.0.1"}'
    )
    with pytest.raises(ClusterError, match=r"instead of 0\.0\.1"):
        list(engine.run([WorkItem(task)]))
    engine.close()


def test_work_that_no_device_can_take_is_an_error_after_a_while(cluster) -> None:
    engine = ClusterExecutor({"gpu:0": "gfx950", **DEVICES}, WorkerConfig(runner="idle_runner:idle"), patience_s=0.5)
    task = Task(op="gemm", arch="gfx950", kernel="k", problem="{}", device="gpu:0")
    with pytest.raises(ClusterError, match="1 for gpu gfx950"):
        list(engine.run([WorkItem(task, ArtifactRef("", "0" * 32))]))
    engine.close()


def test_a_cluster_without_a_gpu_says_so_when_it_is_asked_for_its_own(cluster) -> None:
    with pytest.raises(ClusterError, match=r"none of the cluster's [0-9]+ nodes has a GPU"):
        probe_cluster_gpu("auto")


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """What a journal says of each task, but for who measured it and when. Each task once."""
    records = read_journal(folder).records
    found = {
        each.key: (each.status, each.kind, each.message, each.counters, each.share, each.error_ulps) for each in records
    }
    assert len(found) == len(records)
    return found


def copy_shim(*targets: Path) -> None:
    """Put the HIP shim into other stores: compiling it for each of them would take longer than the sweeps."""
    library = build_shim(find_toolchain(with_ck=False), STORE)
    entry = STORE.get(library.parent.name)
    assert isinstance(entry, Artifact)
    for root in targets:
        Store(root).put(entry.key, {name: entry.folder / name for name in entry.files}, entry.facts)


@pytest.mark.compile
def test_real_kernels_give_on_a_cluster_what_they_give_here(cluster, stores, tmp_path, monkeypatch) -> None:
    """Kernels of the shared store are fetched by nodes into their own; one of them does not compile anywhere."""
    copy_shim(*(stores / f"node{number}" for number in range(len(CPUS))))
    url = f"folder:{tmp_path / 'shared'}"
    (tmp_path / "shared").mkdir()
    gemms = [kernel for kernel in SWEPT[0].kernels() if "-b64x64x32-w2x2x1-i16x16x16" in kernel.slug]
    here = build_kernels(gemms, tiers=Tiers(STORE, open_remote(url))).artifacts
    for artifact in here.values():
        Tiers(STORE, open_remote(url)).publish(artifact)
    keys = {artifact.key for artifact in here.values()}
    broken = scale_kernels(1, factor=666)
    problems = [tw.gemm.Problem(m=m, n=64, k=64, dtype="fp16", layout="rcr") for m in (64, 128, 192)]
    settings = {"mode": "fast"}
    plan = SweepPlan(
        [*problems, *scale_problems(2)], [*broken, *gemms], {BUILT: ARCH}, settings, format_versions(BUILT)
    )
    monkeypatch.setenv("TILEWRIGHT_REMOTE", url)
    run_plan(
        plan, tmp_path / "there", ClusterExecutor(plan.devices, WorkerConfig(settings)), SweepOptions(fsync="never")
    )
    own = Tiers(Store(tmp_path / "own"), open_remote(url))
    run_plan(
        plan,
        tmp_path / "here",
        LocalExecutor([(BUILT, ARCH)], WorkerConfig(settings), tiers=own),
        SweepOptions(fsync="never"),
    )
    there = seen(tmp_path / "there")
    assert there == seen(tmp_path / "here")
    assert Counter(each[:2] for each in there.values()) == {("ok", "counters"): 6, ("build_failed", "none"): 2}
    # One node alone may have measured everything, if the others were slow to start.
    assert any(keys <= set(Store(path).list_keys()) for path in stores.iterdir())


@pytest.mark.compile
@pytest.mark.deep
def test_kernels_are_built_on_one_node_and_measured_on_others(cluster, tmp_path, monkeypatch) -> None:
    """Each node has a store of its own: kernels travel through the shared one."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("TILEWRIGHT_REMOTE", f"folder:{tmp_path / 'shared'}")
    plan = scale_plan(scale_kernels(2), scale_problems(20), BUILT, nap_s=0.05)
    engine = ClusterExecutor(plan.devices, WorkerConfig(plan.settings, runner="idle_runner:opened"))
    summary = run_plan(plan, tmp_path / "journal", engine, SweepOptions(fsync="batch"))
    records = read_journal(tmp_path / "journal").records
    assert {record.message for record in records} == {""}
    assert (summary.statuses, summary.left) == (Counter(ok=40), 0)
    assert {record.task.arch for record in records} == {ARCH}
    assert len({record.worker for record in records}) > 1  # at least one of them did not build it


@pytest.mark.deep
@pytest.mark.parametrize(
    ("queued", "sizes"),
    # A smaller queue, and the one of the engine as it is.
    [(6000, ChunkSizes(held_most=1024, chunk_most=128)), (QUEUED, ChunkSizes())],
    ids=["small", "whole"],
)
def test_a_task_costs_about_what_bare_ray_costs_and_those_that_wait_take_little_memory(
    cluster, queued: int, sizes: ChunkSizes
) -> None:
    """Tasks that do nothing, compared with bare Ray in the same run.

    Others disturb: the best of several rounds counts, and CPU of all processes is compared, which is disturbed least.
    """
    theirs, ours = [run_bare_ray(4000)], []
    large = engine_cost(queued, sizes)
    assert large.grown_mb <= MEMORY_LIMIT_MB
    most = sizes.max_waiting(SEATS) + SEATS * sizes.ahead * sizes.chunk_most
    assert large.held <= most < queued
    ours.append(large.cost)
    theirs.append(run_bare_ray(4000))
    while compare_costs(ours, theirs).cpu > LIMIT and len(ours) < 5:
        ours.append(engine_cost(min(queued, 40_000), sizes).cost)
        theirs.append(run_bare_ray(4000))
    found = compare_costs(ours, theirs)
    print(
        f"a task: {found.wall:.2f} times the wall's time of bare Ray, {found.cpu:.2f} times the CPU; {ours}, {theirs}"
    )
    assert found.cpu <= LIMIT, (ours, theirs)
