"""Builds on a real Ray cluster of two nodes on this machine, each with its own store and a shared folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra `cluster`")

from sweeping import scale_kernels

from bench_build_cluster import KERNELS, check_run, read_compiles, run_cluster
from ray_nodes import add_node, kill_node, ray_nodes
from tilewright.base import knobs
from tilewright.base.errors import ClusterError
from tilewright.base.events import Notice, add_listener
from tilewright.bench.build_cluster import coordinator
from tilewright.bench.build_cluster.coordinator import build_on_cluster
from tilewright.bench.build_cluster.report import LOST, USED, ClusterBuild
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote
from tilewright.building.store.tiers import Tiers
from tilewright.ops.kernel import Kernel

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.compile]
REFUSED = 666  # the factor of `scale` that does not compile


def make_ck_tree(folder: Path) -> Path:
    """A CK tree without headers: `scale` includes none."""
    (folder / "include" / "ck_tile").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(plugin: Path, place: Path) -> Iterator[tuple[Any, list[Any]]]:
    """Two nodes that know the op `scale`, with the same CK tree as this process."""
    with pytest.MonkeyPatch.context() as patch:
        for knob in knobs.KNOBS:
            patch.delenv(knob.name, raising=False)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(plugin), os.environ.get("PYTHONPATH", "")]))
        patch.setenv(knobs.CK_PATH.name, str(make_ck_tree(place / "ck")))
        patch.setenv(knobs.STORE.name, "")  # so that it is put back afterwards
        with ray_nodes(1, 1, stores=place / "stores") as started:
            patch.delenv(knobs.STORE.name)
            yield started


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "share"
    folder.mkdir()
    monkeypatch.setenv(knobs.REMOTE.name, f"folder:{folder}")
    return f"folder:{folder}"


def build(kernels: Sequence[Kernel], store: Path, share: str, **options: Any) -> tuple[ClusterBuild, list[str]]:
    notices: list[str] = []
    with add_listener(lambda event: notices.append(event.message) if isinstance(event, Notice) else None):
        done = build_on_cluster(kernels, tiers=Tiers(Store(store), open_remote(share)), **options)
    return done, notices


def test_each_kernel_is_compiled_once_and_a_second_build_needs_no_cluster(cluster, place, share, tmp_path) -> None:
    kernels = [*scale_kernels(3), *scale_kernels(1, factor=REFUSED)]
    done, _ = build(kernels, tmp_path / "own", share)
    compiled = {kernel.slug for kernel in kernels[:3]}
    assert {kernel.slug for kernel in done.built.artifacts} == compiled
    assert read_compiles(place / "stores") == Counter(compiled)
    (failure,) = done.built.failures.values()
    assert "error" in failure.log
    report = done.report
    assert (report.kernels, report.compiled, report.hits, report.sent_again) == (4, 3, 0, 0)
    assert sum(node.failed for node in report.nodes) == 1
    assert [node.state for node in report.nodes] == [USED] * 2
    assert all(node.cpu_s > node.header_cpu_s > 0 for node in report.nodes if node.compiled)
    # All results, also the failure, are in this machine's store and in the shared one.
    for store in (tmp_path / "own", tmp_path / "other"):
        again, _ = build(kernels, store, share)
        assert (again.report.compiled, again.report.hits, again.report.nodes) == (0, 4, ())
        assert again.built.results.keys() == set(kernels)
    # What only this machine has is uploaded for the others.
    other = tmp_path / "new share"
    other.mkdir()
    build(kernels, tmp_path / "own", f"folder:{other}")
    assert len([path for path in (other / "v1" / "blobs").rglob("*") if path.is_file()]) == 4


@pytest.mark.deep
def test_a_node_killed_in_the_middle_loses_no_kernel(cluster, place, tmp_path, monkeypatch) -> None:
    """Only kernels that the killed node had not finished are compiled elsewhere; its claims keep nobody waiting."""
    monkeypatch.setattr(coordinator, "LOOK_S", 0.2)
    started, nodes = cluster
    killed = nodes.pop()
    kernels = scale_kernels(13)[3:]
    run = run_cluster(kernels, place / "stores", tmp_path / "share", {3: lambda: kill_node(started, killed)})
    nodes.append(add_node(started, cpus=1))
    check_run(run, kernels, killed=True)
    states = {node.node: node for node in run.done.report.nodes}
    assert states[killed.node_id].state == LOST
    assert states[killed.node_id].sent_again <= 4  # one batch
    assert [node.state for node in states.values()].count(USED) == 1
    assert any(killed.node_id[:8] in notice for notice in run.notices), run.notices
    assert run.done.report.wall_s < 110, "it waited until the claims of the killed node expired, after 120 s"


@pytest.mark.deep
def test_nodes_with_other_headers_are_not_used(cluster, place, share, tmp_path, monkeypatch) -> None:
    """The coordinator has the headers of a third node, which therefore builds alone."""
    started, _ = cluster
    other = make_ck_tree(tmp_path / "ck")
    (other / "include" / "ck_tile" / "new.hpp").write_text("#pragma once\n")
    with monkeypatch.context() as patch:
        patch.setenv(knobs.CK_PATH.name, str(other))
        patch.setenv(knobs.STORE.name, str(place / "stores" / "differs"))
        differs = add_node(started, cpus=1)
    try:
        monkeypatch.setenv(knobs.CK_PATH.name, str(other))
        done, notices = build(scale_kernels(22)[20:], tmp_path / "own", share)
        states = {node.node: node for node in done.report.nodes}
        assert (states[differs.node_id].state, states[differs.node_id].compiled) == (USED, 2)
        # A node that answered after the last kernel was built is neither used nor excluded.
        assert all(node.compiled == 0 for name, node in states.items() if name != differs.node_id)
        assert all("is not used: it has other CK headers" in notice for notice in notices)
    finally:
        kill_node(started, differs)


def test_a_cluster_without_a_usable_node_is_an_error(cluster, share, tmp_path, monkeypatch) -> None:
    other = make_ck_tree(tmp_path / "ck")
    (other / "include" / "ck_tile" / "new.hpp").write_text("#pragma once\n")
    monkeypatch.setenv(knobs.CK_PATH.name, str(other))
    with pytest.raises(ClusterError, match=r"no node of the cluster can build the 1 kernels.*it has other CK headers"):
        build(scale_kernels(1, factor=88), tmp_path / "own", share)


@pytest.mark.deep
def test_sixty_small_kernels_with_a_killed_node(cluster, place, tmp_path) -> None:
    """60 kernels that take a second to compile; test_build_cluster_kernels.py builds 60 real ones."""
    started, nodes = cluster
    killed = nodes.pop()
    kernels = scale_kernels(160)[100:]
    run = run_cluster(kernels, place / "stores", tmp_path / "share", {20: lambda: kill_node(started, killed)})
    nodes.append(add_node(started, cpus=1))
    print(run.done.report.to_json(), f"{run.compiles.total()} compiles of {len(run.compiles)} kernels", run.notices)
    check_run(run, kernels, killed=True)
    assert len(run.done.built.artifacts) == KERNELS
