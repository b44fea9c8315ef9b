"""The books of a cluster: whatever is lost on the way, each piece of work leaves as exactly one record."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import InvalidValueError
from tilewright.bench.cluster.ledger import Chunk, ChunkSizes, Ledger, choose_queue
from tilewright.bench.cluster.slots import CPU
from tilewright.bench.executor import WorkItem
from tilewright.bench.record import Record, Task


def work(number: int, device: str = "emulated:gfx942", arch: str = "gfx942") -> WorkItem:
    return WorkItem(Task(op="gemm", arch=arch, kernel="k", problem=f'{{"m":{number}}}', device=device))


def answers(chunk: Chunk) -> list[Record]:
    return [Record(task=each.task, status="ok", kind="counters", counters={"n": 1}) for each in chunk.work]


def filled(count: int, **sizes: float) -> Ledger:
    ledger = Ledger(ChunkSizes(**sizes))
    for number in range(count):
        ledger.add(work(number))
    return ledger


def test_gpus_have_a_lane_for_each_architecture_and_the_rest_shares_one() -> None:
    assert choose_queue(work(1, "gpu:0", "gfx950")) == choose_queue(work(2, "gpu:7", "gfx950")) == "gpu gfx950"
    assert choose_queue(work(1, "emulated:gfx942")) == choose_queue(work(1, "replay:x")) == CPU


def test_a_lane_does_not_get_what_is_of_another() -> None:
    ledger = Ledger()
    ledger.add(work(1, "gpu:0", "gfx950"))
    assert ledger.take("gpu gfx942") is None
    assert ledger.count_waiting() == {"gpu gfx950": 1}
    assert ledger.take("gpu gfx950") is not None
    assert ledger.count_waiting() == {}


def test_chunks_grow_until_they_take_the_time_they_should() -> None:
    ledger = filled(1000, chunk_s=0.5, chunk_most=256)
    first = ledger.take(CPU)
    assert first is not None
    assert len(first.work) == 1  # nothing is known yet
    ledger.finish_chunk(first, answers(first), 0.01)
    second = ledger.take(CPU)
    assert second is not None
    assert len(second.work) == 50


def test_what_it_took_to_start_a_process_says_nothing() -> None:
    ledger = filled(100)
    first = ledger.take(CPU)
    assert first is not None
    ledger.finish_chunk(first, answers(first), None)
    second = ledger.take(CPU)
    assert second is not None
    assert len(second.work) == 1


def test_near_the_end_all_devices_have_something_to_do() -> None:
    ledger = filled(41, chunk_s=100.0)
    first = ledger.take(CPU)
    assert first is not None
    ledger.finish_chunk(first, answers(first), 0.001)
    sizes = []
    while (chunk := ledger.take(CPU, devices=4)) is not None:
        sizes.append(len(chunk.work))
    assert sizes[0] == 5
    assert sum(sizes) == 40
    assert len(sizes) > 8


def test_a_device_stays_with_its_problem_and_others_take_others() -> None:
    ledger = Ledger(ChunkSizes(chunk_s=4.0))
    for number in range(4):
        for kernel in range(16):
            task = replace(work(number).task, kernel=f"k{kernel}")
            ledger.add(WorkItem(task))
    first = ledger.take(CPU, 2, "a")
    assert first is not None
    ledger.finish_chunk(first, answers(first), 1.0)
    at = {"a": [first.work[0].task.problem], "b": []}
    while True:
        for taker, problems in at.items():
            chunk = ledger.take(CPU, 2, taker)
            if chunk is None:
                # One after another; only the last problem is shared.
                assert len(list(itertools.groupby(at["a"]))) <= 3
                assert len(list(itertools.groupby(at["b"]))) <= 3
                assert len(set(at["a"]) & set(at["b"])) <= 1
                return
            problems += [each.task.problem for each in chunk.work]
            ledger.finish_chunk(chunk, answers(chunk), float(len(chunk.work)))


def test_the_problem_of_a_lost_device_is_anybodys() -> None:
    ledger = Ledger(ChunkSizes(chunk_s=4.0))
    for number in (1, 1, 2):
        ledger.add(work(number))
    assert ledger.take(CPU, 2, "a") is not None
    ledger.release_device("a")
    again = ledger.take(CPU, 2, "b")
    assert again is not None
    assert again.work[0] == work(1)


def test_a_chunk_is_for_one_device() -> None:
    ledger = filled(3)
    ledger.add(work(9, "emulated:gfx950"))
    first = ledger.take(CPU)
    assert first is not None
    ledger.finish_chunk(first, answers(first), 1e-9)
    second, third = ledger.take(CPU), ledger.take(CPU)
    assert second is not None
    assert third is not None
    assert {each.task.device for each in third.work} | {each.task.device for each in second.work} > {"emulated:gfx942"}
    assert all(len({each.task.device for each in chunk.work}) == 1 for chunk in (second, third))


def test_a_lost_chunk_goes_out_again_piece_by_piece_before_all_else() -> None:
    ledger = filled(20, chunk_s=1.0)
    first = ledger.take(CPU)
    assert first is not None
    ledger.finish_chunk(first, answers(first), 0.25)
    lost = ledger.take(CPU)
    assert lost is not None
    assert len(lost.work) == 4
    assert ledger.take_back_lost(lost, "its node died", blamed=True) == []
    again = [ledger.take(CPU) for _ in range(4)]
    assert [chunk.work for chunk in again if chunk] == [(each,) for each in lost.work]


def test_an_answer_that_comes_after_its_chunk_was_lost_does_not_count() -> None:
    ledger = filled(1)
    chunk = ledger.take(CPU)
    assert chunk is not None
    ledger.take_back_lost(chunk, "unavailable", blamed=True)
    assert ledger.finish_chunk(chunk, answers(chunk), 1.0) == ([], [])
    assert ledger.waiting_count == 1


def test_records_of_others_and_second_ones_are_left_out_and_missing_ones_are_told() -> None:
    ledger = filled(3, chunk_s=1000.0)
    for _ in range(1):
        first = ledger.take(CPU)
        assert first is not None
        ledger.finish_chunk(first, answers(first), 1e-9)
    second = ledger.take(CPU)
    assert second is not None
    stranger = Record(task=work(77).task, status="crashed")
    good = answers(second)[0]
    kept, unanswered = ledger.finish_chunk(second, [good, good, stranger], 1.0)
    assert kept == [good]
    assert unanswered == list(second.work[1:])


def test_a_task_that_takes_devices_down_alone_is_given_up() -> None:
    ledger = filled(1, losses_most=3)
    for left in (2, 1, 0):
        chunk = ledger.take(CPU)
        assert chunk is not None
        given_up = ledger.take_back_lost(chunk, "the node rebooted", blamed=True)
        assert len(given_up) == (1 if left == 0 else 0)
    assert given_up[0].status == "crashed"
    assert "3 devices" in given_up[0].message
    assert "the node rebooted" in given_up[0].message
    assert ledger.take(CPU) is None


def test_a_neighbour_of_a_task_that_kills_devices_is_not_given_up() -> None:
    """Two chunks are at the device. It dies with the second, before the answer of the first has left it."""
    ledger = filled(3, losses_most=3)
    killer, records = work(1).task, []
    while ledger.waiting_count:
        in_flight: list[Chunk] = []
        while (chunk := ledger.take(CPU, in_flight=in_flight)) is not None:
            in_flight.append(chunk)
        dies = any(chunk.work[0].task == killer for chunk in in_flight)
        for index, chunk in enumerate(in_flight):
            if dies:
                records += ledger.take_back_lost(chunk, "killed", blamed=index == 0)
            else:
                records += ledger.finish_chunk(chunk, answers(chunk), 1.0)[0]
    assert {record.task.problem: record.status for record in records} == {
        '{"m":0}': "ok",
        '{"m":1}': "crashed",
        '{"m":2}': "ok",
    }


def test_a_task_that_only_waited_is_never_given_up() -> None:
    ledger = filled(1, losses_most=1)
    for _ in range(10):
        chunk = ledger.take(CPU)
        assert chunk is not None
        assert ledger.take_back_lost(chunk, "gone", blamed=False) == []


def test_sizes_that_allow_nothing_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="held_most is 0"):
        ChunkSizes(held_most=0)


@given(st.lists(st.tuples(st.sampled_from(["take", "settle", "lose", "late", "half"]), st.integers(0, 9))))
def test_whatever_happens_each_piece_of_work_gives_one_record(steps: list[tuple[str, int]]) -> None:
    ledger = filled(30, chunk_s=0.1, losses_most=2)
    out: list[Chunk] = []
    gone: list[Chunk] = []
    records: list[Record] = []

    def settle(chunk: Chunk, share: float) -> None:
        given_back = answers(chunk)[: round(len(chunk.work) * share)]
        kept, unanswered = ledger.finish_chunk(chunk, given_back, 0.01)
        records.extend(kept)
        for each in unanswered:
            ledger.add(each)
        gone.append(chunk)

    for step, number in steps:
        if step == "take" and (chunk := ledger.take(CPU, devices=2)) is not None:
            out.append(chunk)
        elif step == "late" and gone:
            assert ledger.finish_chunk(gone[number % len(gone)], answers(gone[number % len(gone)]), 0.01) == ([], [])
        elif out and step in ("settle", "half"):
            settle(out.pop(number % len(out)), 1.0 if step == "settle" else 0.5)
        elif out and step == "lose":
            chunk = out.pop(number % len(out))
            records.extend(ledger.take_back_lost(chunk, "lost", blamed=number % 2 == 0))
            gone.append(chunk)
    for chunk in out:
        settle(chunk, 1.0)
    while (chunk := ledger.take(CPU)) is not None:
        settle(chunk, 1.0)
    assert ledger.waiting_count == ledger.out == 0
    assert Counter(record.key for record in records) == Counter(work(number).task.key for number in range(30))


def test_what_no_device_can_take_goes_out_alone_and_is_given_up_then() -> None:
    ledger = filled(5, chunk_s=10.0)
    first = ledger.take(CPU)
    assert first is not None
    ledger.finish_chunk(first, answers(first), 0.01)
    both = ledger.take(CPU)
    assert both is not None and len(both.work) == 2
    assert ledger.take_back_rejected(both, "ValueError") == [] and ledger.take_back_rejected(both, "again") == []
    assert (ledger.waiting_count, ledger.out) == (4, 0)
    alone = ledger.take(CPU)
    assert alone is not None and len(alone.work) == 1
    (record,) = ledger.take_back_rejected(alone, "cpu 0: ValueError")
    assert (record.task, record.status) == (alone.work[0].task, "crashed") and "ValueError" in record.message
    assert (ledger.waiting_count, ledger.out) == (3, 0)
