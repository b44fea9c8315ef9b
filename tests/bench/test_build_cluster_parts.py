"""The parts of a build on a cluster that need no Ray: batches, the check of a node, and the cost report."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from tilewright.base.errors import ClusterError
from tilewright.bench.build_cluster.batches import (
    BATCH_CPU_S,
    MOST_ATTEMPTS,
    MOST_LOSSES,
    KernelBatches,
    WaitingKernel,
)
from tilewright.bench.build_cluster.handshake import BuilderInfo, RightAnswers, sign_challenge
from tilewright.bench.build_cluster.report import LOST, ClusterReport, NodeReport, list_reports
from tilewright.bench.build_cluster.shared_kernels import require_shared_store
from tilewright.building.builder import MOST_CLAIMED_PER_JOB
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote
from tilewright.building.store.tiers import Tiers


def batches(costs: dict[str, list[float | None]]) -> KernelBatches:
    """Groups of kernels with these costs; the key of a kernel is its group and its number."""
    listed = [WaitingKernel(f"{group}{n}", group, cost) for group, all_ in costs.items() for n, cost in enumerate(all_)]
    return KernelBatches({kernel.key: kernel for kernel in listed})


def taken_by(waiting: KernelBatches, nodes: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """All batches, taken by the nodes in turn."""
    found: list[tuple[str, tuple[str, ...]]] = []
    while waiting.waiting_count:
        found += [(node, batch) for node in nodes if (batch := waiting.take(node, len(nodes)))]
    return found


def test_every_kernel_is_taken_once_and_the_most_expensive_first() -> None:
    waiting = batches({"a": [float(1 + n % 7) for n in range(50)]})
    found = taken_by(waiting, ["x", "y", "z"])
    keys = [key for _, batch in found for key in batch]
    assert sorted(keys) == sorted(waiting.kernels)
    costs = [waiting.estimate_cpu_s(key) for key in keys]
    assert costs == sorted(costs, reverse=True)


def test_batches_are_bounded_and_get_small_at_the_end() -> None:
    waiting = batches({"a": [10.0] * 40})
    sizes = [len(batch) for _, batch in taken_by(waiting, ["x", "y"])]
    assert max(sizes) * 10 <= BATCH_CPU_S
    assert sizes[-4:] == [1, 1, 1, 1]
    assert sizes[0] == 3
    cheap = batches({"a": [0.1] * 400})
    assert len(cheap.take("x", 1)) == MOST_CLAIMED_PER_JOB
    assert len(batches({"a": [100.0] * 9}).take("x", 1)) == 1


def test_nodes_stay_with_a_group_and_share_the_last_one() -> None:
    """Each node precompiles the headers of a group once, so it changes the group only when its own is used up."""
    waiting = batches({"a": [20.0] * 4, "b": [20.0] * 4, "c": [20.0] * 12})
    found = taken_by(waiting, ["x", "y", "z"])
    groups = {node: [batch[0][0] for owner, batch in found if owner == node] for node in "xyz"}
    changes = {node: sum(a != b for a, b in itertools.pairwise(listed)) for node, listed in groups.items()}
    assert {listed[0] for listed in groups.values()} == {"a", "b", "c"}
    assert max(changes.values()) == 1, groups


def test_costs_of_a_build_make_its_later_batches_larger() -> None:
    waiting = batches({"a": [None] * 100})
    assert len(waiting.take("x", 1)) == 2  # 14 s each: see USUAL_CPU_S
    waiting.record_cost("a0", 3.0)
    waiting.record_cost("a1", 5.0)
    assert waiting.estimate_cpu_s("a7") == 4.0
    assert len(waiting.take("x", 1)) == MOST_CLAIMED_PER_JOB


def test_kernels_of_a_lost_node_come_first_and_alone_until_they_are_given_up() -> None:
    waiting = batches({"a": [1.0] * 20})
    batch = waiting.take("x", 1)
    assert len(batch) == 4
    assert waiting.take_back_lost(batch) == []
    assert waiting.waiting_count == 20
    again = [waiting.take("y", 1) for _ in batch]
    assert again == [(key,) for key in batch]
    for _ in range(MOST_LOSSES - 1):
        assert waiting.take_back_lost(batch[:1]) == []
        assert waiting.take("y", 1) == batch[:1]
    assert waiting.take_back_lost(batch[:1]) == [batch[0]]
    assert batch[0] not in [key for _, each in taken_by(waiting, ["y"]) for key in each]


def test_a_failure_of_the_machine_is_tried_again_once() -> None:
    waiting = batches({"a": [1.0]})
    for _ in range(MOST_ATTEMPTS - 1):
        (key,) = waiting.take("x", 1)
        assert waiting.take_back_failed(key)
    assert waiting.take("x", 1) == ("a0",)
    assert not waiting.take_back_failed("a0")
    assert waiting.take("x", 1) == ()


class FakeToolchain:
    """The two facts about a toolchain that nodes must share."""

    ck_digest = "c0"

    def identity(self) -> str:
        return "clang 22"


SECRET = b"0123456789abcdef"
SIGNATURE = sign_challenge(SECRET, "text")
SAME = BuilderInfo("host", "holder", "1.0", "clang 22", "c0", "k", sees_probe=True, signature=SIGNATURE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"sees_probe": False}, "another folder or server"),
        ({"signature": ""}, "another secret"),
        ({"signature": sign_challenge(SECRET[::-1], "text")}, "another secret"),
        ({"version": "1.1"}, "it has Tilewright 1.1 instead of 1.0"),
        ({"toolchain": "clang 21"}, "clang 21, not clang 22"),
        ({"ck_digest": "c1"}, "other CK headers, with the digest c1 instead of c0"),
        ({"key": "m"}, "computes the key m instead of k"),
    ],
)
def test_a_node_that_differs_is_described(change: dict[str, object], said: str) -> None:
    right = RightAnswers("1.0", FakeToolchain(), "k", SIGNATURE)  # type: ignore[arg-type]
    found = right.describe_difference(dataclasses.replace(SAME, **change))  # type: ignore[arg-type]
    assert said in found
    assert bool(said) == bool(found)


def test_a_build_on_a_cluster_needs_a_shared_store_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"none is set\. Set TILEWRIGHT_REMOTE to a folder"):
        require_shared_store(Tiers(Store(tmp_path)))
    remote = open_remote(f"folder:{tmp_path}")
    with pytest.raises(ClusterError, match="is only read here"):
        require_shared_store(Tiers(Store(tmp_path), remote, writes=False))
    assert require_shared_store(Tiers(Store(tmp_path), remote)) is remote


def test_the_report_adds_up() -> None:
    first = NodeReport("aa", "10.0.0.2", 4, compiled=5, hits=1, failed=1, cpu_s=50.125, header_cpu_s=6.0)
    second = NodeReport("bb", "10.0.0.1", 1, LOST, "the node is gone", compiled=2, sent_again=3, cpu_s=20.0)
    report = ClusterReport(list_reports({"aa": first, "bb": second}), 13, 4, 0.5, 30.0, "folder:/x")
    found = json.loads(json.dumps(report.to_json()))
    assert [node["host"] for node in found["nodes"]] == ["10.0.0.1", "10.0.0.2"]
    totals = {name: found[name] for name in ("kernels", "compiled", "hits", "failed", "sent_again", "cpu_s")}
    assert totals == {"kernels": 13, "compiled": 7, "hits": 5, "failed": 1, "sent_again": 3, "cpu_s": 70.12}
