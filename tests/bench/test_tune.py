"""Winners of measured times: what counts, what does not, and what measuring was worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import InvalidValueError
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.bench.tune import compute_gains, group_times, make_tuned_table
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_values import dump_problem
from tilewright.select.chain import estimate_times
from tilewright.select.select import CandidatePool

KERNELS = list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))
FIRST, SECOND, THIRD = sorted(KERNELS, key=lambda kernel: kernel.slug)[:3]


def problem(m: int) -> Any:
    return tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr")


def task(kernel: Kernel, of: Any, **more: Any) -> Task:
    text = dump_problem(of)
    return Task(
        **{"op": kernel.op, "arch": kernel.arch, "kernel": kernel.slug, "problem": text, "device": "gpu:0"} | more
    )


def time(kernel: Kernel, of: Any, us: float, **more: Any) -> Record:
    times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=10, warmups=3)
    return Record(task=task(kernel, of, **more), status="ok", kind="time", times=times)


def failure(kernel: Kernel, of: Any, status: str = "wrong") -> Record:
    return Record(task=task(kernel, of), status=status, message="as told")


def counters(kernel: Kernel, of: Any) -> Record:
    device = f"emulated:{kernel.arch}"
    return Record(task=task(kernel, of, device=device), status="ok", kind="counters", counters={"instructions": 1})


def test_the_fastest_of_each_problem_wins_in_any_order() -> None:
    records = [
        time(FIRST, problem(4096), 30.0),
        time(SECOND, problem(4096), 20.0),
        failure(THIRD, problem(4096)),
        counters(THIRD, problem(4096)),
        time(FIRST, problem(8192), 50.0),
    ]
    for order in (records, records[::-1]):
        table = make_tuned_table(order, "mine")
        found = {entry.problem.m: (entry.kernel, entry.us) for entry in table}
        assert found == {4096: (SECOND, 20.0), 8192: (FIRST, 50.0)}
        assert table.source == "mine"


def test_a_kernel_that_was_measured_again_has_its_median() -> None:
    again = [time(FIRST, problem(64), us, versions=f"driver {us}") for us in (10.0, 40.0, 41.0)]
    winner = group_times([*again, time(SECOND, problem(64), 30.0)])[0].winner
    assert (winner.kernel, winner.us) == (SECOND, 30.0)


def test_of_equal_times_the_first_by_name_wins() -> None:
    for order in ((FIRST, SECOND), (SECOND, FIRST)):
        assert group_times([time(kernel, problem(64), 7.0) for kernel in order])[0].winner.kernel == FIRST


def test_gpus_are_apart() -> None:
    other = replace(FIRST, arch="gfx950")
    table = make_tuned_table([time(FIRST, problem(64), 9.0), time(other, problem(64), 4.0)])
    assert [(entry.kernel.arch, entry.us) for entry in table] == [("gfx942", 9.0), ("gfx950", 4.0)]


def test_counters_are_never_taken_for_times() -> None:
    with pytest.raises(InvalidValueError, match=r"no record holds a time.* 2 counters, 1 wrong\. .* no times"):
        make_tuned_table([counters(FIRST, problem(64)), counters(SECOND, problem(64)), failure(FIRST, problem(64))])


def test_nothing_has_no_winners() -> None:
    with pytest.raises(InvalidValueError, match="There are: no records"):
        make_tuned_table([])


def test_cold_and_warm_times_are_not_compared() -> None:
    records = [time(FIRST, problem(64), 9.0), time(SECOND, problem(64), 8.0, cold=True)]
    with pytest.raises(InvalidValueError, match="1 times are with cold caches and 1 with warm ones"):
        make_tuned_table(records)
    assert [entry.kernel for entry in make_tuned_table(records, cold=True)] == [SECOND]
    assert [entry.kernel for entry in make_tuned_table(records, cold=False)] == [FIRST]
    with pytest.raises(InvalidValueError, match="no time is with cold caches; 1 are with warm ones"):
        make_tuned_table(records[:1], cold=True)


def test_a_record_that_contradicts_itself_is_named() -> None:
    wrong = time(FIRST, problem(64), 9.0, arch="gfx950")
    with pytest.raises(InvalidValueError, match=f"record {wrong.key} is for gemm on gfx950, but .* gemm on gfx942"):
        make_tuned_table([wrong])
    unread = time(FIRST, problem(64), 9.0, problem='{"m": 1, "what": 2}')
    with pytest.raises(InvalidValueError, match=f"record {unread.key} has an invalid problem"):
        make_tuned_table([unread])


def test_gains_are_over_what_the_estimate_would_have_taken() -> None:
    sizes = (1024, 2048, 4096)
    part = CandidatePool.create(tw.load("gfx942"), (FIRST, SECOND, THIRD)).get_candidates(problem(64))
    assert part is not None
    records, worth = [], {1024: 1.0, 2048: 2.0, 4096: 4.0}
    for m in sizes:
        us = list(estimate_times(part, problem(m), [0, 1, 2]))
        best = us.index(min(us))
        # The estimate's choice takes `worth` times as long as the winner, all others longer.
        times = dict.fromkeys(range(3), 90.0) | {best: 10.0 * worth[m], (best + 1) % 3: 10.0}
        records += [time(part.kernels[place], problem(m), each) for place, each in times.items()]
    found = compute_gains(group_times(records))
    assert [gain.times_faster for gain in found.gains] == [1.0, 2.0, 4.0]
    assert found.times_faster == pytest.approx(2.0)
    assert (found.agreed, found.uncompared) == (1, 0)
    assert found.largest is not None and found.largest.winner.problem.m == 4096


def test_a_problem_without_an_estimate_is_counted_apart() -> None:
    odd = tw.gemm.Problem(m=4096, n=4001, k=4096, dtype="fp16", layout="rcr")  # no kernel here has such an n
    found = compute_gains(group_times([time(FIRST, odd, 5.0)]))
    assert (found.gains, found.uncompared, found.times_faster, found.largest) == ((), 1, None, None)
