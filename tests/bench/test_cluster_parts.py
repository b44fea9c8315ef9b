"""What a cluster executor is made of: seats on nodes, builds that work waits for, and the software of a node."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ClusterError, DeviceError, StoreError
from tilewright.bench.cluster.actor import DeviceActor, NodeBuildResult
from tilewright.bench.cluster.builds import TRIES, BuildQueue
from tilewright.bench.cluster.session import RaySession, describe_differences
from tilewright.bench.cluster.slots import (
    CPU,
    GPU,
    DeviceSlot,
    Node,
    check_nodes,
    count_builders,
    list_slots,
    parse_nodes,
)
from tilewright.bench.executor import ArtifactRef, WorkerConfig, WorkItem
from tilewright.bench.record import Record, Task

LARGE = Node("aaaaaaaaaa", "10.0.0.1", cpus=64, gpus=8)
SMALL = Node("bbbbbbbbbb", "10.0.0.2", cpus=1, gpus=0)


def work(kernel: str, device: str = "emulated:gfx942") -> WorkItem:
    return WorkItem(Task(op="gemm", arch="gfx942", kernel=kernel, problem="{}", device=device))


def test_dead_nodes_are_no_nodes() -> None:
    listed = [
        {"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 4.0, "GPU": 2.0}},
        {"NodeID": "b", "Alive": False, "NodeManagerAddress": "10.0.0.2", "Resources": {}},
        {"NodeID": "c", "Alive": True, "NodeManagerAddress": "10.0.0.3", "Resources": {"memory": 1e9}},
    ]
    assert parse_nodes(listed) == {"a": Node("a", "10.0.0.1", 4, 2), "c": Node("c", "10.0.0.3", 0, 0)}


def test_each_gpu_is_a_seat_and_takes_no_processor_from_builds() -> None:
    assert list_slots([LARGE, SMALL], {GPU}, builds=True) == {
        DeviceSlot("aaaaaaaaaa", GPU, index) for index in range(8)
    }
    assert count_builders([LARGE, SMALL], {GPU}) == 65


def test_emulated_devices_leave_a_processor_for_builds_where_there_are_several() -> None:
    seats = list_slots([LARGE, SMALL], {CPU}, builds=True)
    assert len(seats) == 63 + 1
    assert count_builders([LARGE, SMALL], {CPU}) == 1
    assert count_builders([SMALL], {CPU}) == 0
    assert len(list_slots([LARGE], {CPU}, builds=False)) == 64


def test_a_cluster_on_which_nothing_could_be_measured_is_refused() -> None:
    with pytest.raises(ClusterError, match="no living node"):
        check_nodes([], {CPU}, builds=False, shared=True)
    with pytest.raises(ClusterError, match=r"2 machines and no shared store.*TILEWRIGHT_REMOTE"):
        check_nodes([LARGE, SMALL], {GPU}, builds=True, shared=False)
    with pytest.raises(ClusterError, match=r"all 1 CPUs of 1 nodes.*none is left for builds"):
        check_nodes([SMALL], {CPU}, builds=True, shared=True)
    check_nodes([SMALL], {CPU}, builds=False, shared=False)
    check_nodes([LARGE, SMALL], {GPU, CPU}, builds=True, shared=True)


def test_work_waits_for_its_kernel_and_goes_on_with_its_place() -> None:
    builds = BuildQueue(iter(["a", "b"]))
    assert builds.submit_work(work("c")) is None
    assert builds.take_next() == "c"  # work waits for it
    assert builds.take_next() == "a"
    assert builds.submit_work(work("a")) is None
    assert builds.waiting_count == 2
    assert builds.take_next() == "b"
    assert builds.take_next() is None
    assert builds.handle_results([NodeBuildResult("a", "key of a")]) == [
        work("a").bind_artifact(ArtifactRef("", "key of a"))
    ]
    assert builds.submit_work(work("a")) == work("a").bind_artifact(ArtifactRef("", "key of a"))
    assert builds.waiting_count == 1


def test_a_replayed_device_waits_for_no_build() -> None:
    asked = work("a", "replay:x")
    builds = BuildQueue(iter(["a"]))
    assert builds.submit_work(asked) is asked
    assert builds.take_next() is None


def test_a_kernel_that_does_not_compile_is_a_record_for_each_of_its_tasks() -> None:
    builds = BuildQueue(iter(()))
    builds.submit_work(work("a"))
    freed = builds.handle_results([NodeBuildResult("a", "key", "error: no such intrinsic")])
    later = builds.submit_work(work("a"))
    for record in (*freed, later):
        assert isinstance(record, Record)
        assert (record.status, record.message) == ("build_failed", "error: no such intrinsic")


def test_a_build_whose_node_died_is_tried_again_but_not_for_ever() -> None:
    builds = BuildQueue(iter(()))
    builds.submit_work(work("a"))
    for number in range(1, TRIES + 1):
        assert builds.take_next() == "a"
        freed = builds.retry_builds(["a"], "its node died")
        assert len(freed) == (1 if number == TRIES else 0)
    assert isinstance(freed[0], Record)
    assert freed[0].status == "build_failed"
    assert "its node died" in freed[0].message
    assert builds.take_next() is None


def test_a_kernel_that_a_node_does_not_find_is_built_again() -> None:
    builds = BuildQueue(iter(()))
    builds.submit_work(work("a"))
    builds.take_next()
    [ready] = builds.handle_results([NodeBuildResult("a", "old")])
    assert isinstance(ready, WorkItem)
    assert builds.handle_missing([ready], "not in the store") == []
    assert builds.waiting_count == 1
    assert builds.take_next() == "a"
    assert builds.handle_results([NodeBuildResult("a", "new")]) == [work("a").bind_artifact(ArtifactRef("", "new"))]


def test_a_node_with_other_software_is_told_by_what_differs() -> None:
    versions = '{"ck":"1","hip":"60342134","tilewright":"0.5"}'
    assert describe_differences(versions, {"tilewright": "0.5", "hip": "60342134"}) == ""
    assert describe_differences(versions, {"tilewright": "0.4"}) == "tilewright 0.4 instead of 0.5"
    assert describe_differences("", {"tilewright": "0.4"}) == ""


def test_a_device_measures_quarantines_and_passes_over_kernels_it_cannot_get(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_REMOTE", raising=False)
    actor = DeviceActor(CPU, WorkerConfig(settings={}, runner="idle_runner:idle"), 1, {})
    nowhere = work("b").bind_artifact(ArtifactRef("", "0" * 32))
    try:
        answer = actor.run([work("a", "replay:x"), nowhere])
        assert [record.status for record in answer.records] == ["ok"]
        assert answer.seconds is None  # a process was started
        assert actor.run([work("a", "replay:x")]).seconds is not None
    finally:
        actor.close()
    broken = DeviceActor(CPU, WorkerConfig(settings={}, runner="idle_runner:broken"), 1, {})
    try:
        answer = broken.run([work("a", "replay:x"), work("a", "replay:x")])
    finally:
        broken.close()
    assert [record.status for record in answer.records] == ["crashed", "quarantined"]


def test_only_an_error_of_the_device_leaves_an_actor(monkeypatch) -> None:
    """A store that fails (mocked) is the node's: another node can measure the task. All else is the task's."""
    actor = DeviceActor(CPU, WorkerConfig(settings={"no JSON": {1}}, runner="idle_runner:idle"), 3, {})
    answer = actor.run([work("a", "replay:x"), work("b", "replay:x")])
    assert [record.status for record in answer.records] == ["crashed", "crashed"]
    assert "TypeError" in answer.records[0].message
    for failure in (OSError(28, "No space left on device"), StoreError("the store is damaged")):

        def fail(_: WorkItem, failure: Exception = failure) -> None:
            raise failure

        monkeypatch.setattr("tilewright.bench.cluster.actor._resolve_artifact", fail)
        with pytest.raises(DeviceError, match=str(failure.args[-1])):
            actor.run([work("c").bind_artifact(ArtifactRef("", "0" * 32))])


def test_a_gpu_that_is_not_there_is_an_error_of_the_device() -> None:
    with pytest.raises(DeviceError):
        DeviceActor(GPU, WorkerConfig(settings={}), 3, {}).describe_device()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_an_address_without_a_cluster_is_an_error_at_once(address: str) -> None:
    pytest.importorskip("ray", reason="needs the extra `cluster`")
    with pytest.raises(ClusterError, match=address):
        RaySession(address)
