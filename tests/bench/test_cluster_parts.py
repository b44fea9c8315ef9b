"""What a cluster executor is made of: seats on nodes, builds that work waits for, and the software of a node."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ClusterError, DeviceError, StoreError
from tilewright.bench.cluster.actor import BuildAnswer, DeviceActor
from tilewright.bench.cluster.builds import TRIES, Builds
from tilewright.bench.cluster.seats import CPU, GPU, Node, Seat, builders_of, check_nodes, nodes_of, seats_of
from tilewright.bench.cluster.session import Session
from tilewright.bench.cluster.versions import unlike
from tilewright.bench.executor import Crew, Place, Work
from tilewright.bench.record import Record, Task

LARGE = Node("aaaaaaaaaa", "10.0.0.1", cpus=64, gpus=8)
SMALL = Node("bbbbbbbbbb", "10.0.0.2", cpus=1, gpus=0)


def work(kernel: str, device: str = "emulated:gfx942") -> Work:
    return Work(Task(op="gemm", arch="gfx942", kernel=kernel, problem="{}", device=device))


def test_dead_nodes_are_no_nodes() -> None:
    listed = [
        {"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 4.0, "GPU": 2.0}},
        {"NodeID": "b", "Alive": False, "NodeManagerAddress": "10.0.0.2", "Resources": {}},
        {"NodeID": "c", "Alive": True, "NodeManagerAddress": "10.0.0.3", "Resources": {"memory": 1e9}},
    ]
    assert nodes_of(listed) == {"a": Node("a", "10.0.0.1", 4, 2), "c": Node("c", "10.0.0.3", 0, 0)}


def test_each_gpu_is_a_seat_and_takes_no_processor_from_builds() -> None:
    assert seats_of([LARGE, SMALL], {GPU}, builds=True) == {Seat("aaaaaaaaaa", GPU, index) for index in range(8)}
    assert builders_of([LARGE, SMALL], {GPU}) == 65


def test_emulated_devices_leave_a_processor_for_builds_where_there_are_several() -> None:
    seats = seats_of([LARGE, SMALL], {CPU}, builds=True)
    assert len(seats) == 63 + 1
    assert builders_of([LARGE, SMALL], {CPU}) == 1
    assert builders_of([SMALL], {CPU}) == 0
    assert len(seats_of([LARGE], {CPU}, builds=False)) == 64


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
    builds = Builds(iter(["a", "b"]))
    assert builds.ready(work("c")) is None
    assert builds.next() == "c"  # work waits for it
    assert builds.next() == "a"
    assert builds.ready(work("a")) is None
    assert builds.held == 2
    assert builds.next() == "b"
    assert builds.next() is None
    assert builds.settle([BuildAnswer("a", "key of a")]) == [work("a").built(Place("", "key of a"))]
    assert builds.ready(work("a")) == work("a").built(Place("", "key of a"))
    assert builds.held == 1


def test_a_replayed_device_waits_for_no_build() -> None:
    asked = work("a", "replay:x")
    builds = Builds(iter(["a"]))
    assert builds.ready(asked) is asked
    assert builds.next() is None


def test_a_kernel_that_does_not_compile_is_a_record_for_each_of_its_tasks() -> None:
    builds = Builds(iter(()))
    builds.ready(work("a"))
    freed = builds.settle([BuildAnswer("a", "key", "error: no such intrinsic")])
    later = builds.ready(work("a"))
    for record in (*freed, later):
        assert isinstance(record, Record)
        assert (record.status, record.message) == ("build_failed", "error: no such intrinsic")


def test_a_build_whose_node_died_is_tried_again_but_not_for_ever() -> None:
    builds = Builds(iter(()))
    builds.ready(work("a"))
    for number in range(1, TRIES + 1):
        assert builds.next() == "a"
        freed = builds.lose(["a"], "its node died")
        assert len(freed) == (1 if number == TRIES else 0)
    assert isinstance(freed[0], Record)
    assert freed[0].status == "build_failed"
    assert "its node died" in freed[0].message
    assert builds.next() is None


def test_a_kernel_that_a_node_does_not_find_is_built_again() -> None:
    builds = Builds(iter(()))
    builds.ready(work("a"))
    builds.next()
    [ready] = builds.settle([BuildAnswer("a", "old")])
    assert isinstance(ready, Work)
    assert builds.gone([ready], "not in the store") == []
    assert builds.held == 1
    assert builds.next() == "a"
    assert builds.settle([BuildAnswer("a", "new")]) == [work("a").built(Place("", "new"))]


def test_a_node_with_other_software_is_told_by_what_differs() -> None:
    versions = '{"ck":"1","hip":"60342134","tilewright":"0.5"}'
    assert unlike(versions, {"tilewright": "0.5", "hip": "60342134"}) == ""
    assert unlike(versions, {"tilewright": "0.4"}) == "tilewright 0.4 instead of 0.5"
    assert unlike("", {"tilewright": "0.4"}) == ""


def test_a_device_measures_quarantines_and_passes_over_kernels_it_cannot_get(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_REMOTE", raising=False)
    actor = DeviceActor(CPU, Crew(settings={}, runner="idle_runner:idle"), 1, {})
    nowhere = work("b").built(Place("", "0" * 32))
    try:
        answer = actor.run([work("a", "replay:x"), nowhere])
        assert [record.status for record in answer.records] == ["ok"]
        assert answer.seconds is None  # a process was started
        assert actor.run([work("a", "replay:x")]).seconds is not None
    finally:
        actor.close()
    broken = DeviceActor(CPU, Crew(settings={}, runner="idle_runner:broken"), 1, {})
    try:
        answer = broken.run([work("a", "replay:x"), work("a", "replay:x")])
    finally:
        broken.close()
    assert [record.status for record in answer.records] == ["crashed", "quarantined"]


def test_only_an_error_of_the_device_leaves_an_actor(monkeypatch) -> None:
    """A store that fails (mocked) is the node's: another node can measure the task. All else is the task's."""
    actor = DeviceActor(CPU, Crew(settings={"no JSON": {1}}, runner="idle_runner:idle"), 3, {})
    answer = actor.run([work("a", "replay:x"), work("b", "replay:x")])
    assert [record.status for record in answer.records] == ["crashed", "crashed"]
    assert "TypeError" in answer.records[0].message
    for failure in (OSError(28, "No space left on device"), StoreError("the store is damaged")):

        def fail(_: Work, failure: Exception = failure) -> None:
            raise failure

        monkeypatch.setattr("tilewright.bench.cluster.actor._with_place_here", fail)
        with pytest.raises(DeviceError, match=str(failure.args[-1])):
            actor.run([work("c").built(Place("", "0" * 32))])


def test_a_gpu_that_is_not_there_is_an_error_of_the_device() -> None:
    with pytest.raises(DeviceError):
        DeviceActor(GPU, Crew(settings={}), 3, {}).describe_device()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_an_address_without_a_cluster_is_an_error_at_once(address: str) -> None:
    pytest.importorskip("ray", reason="needs the extra `cluster`")
    with pytest.raises(ClusterError, match=address):
        Session(address)
