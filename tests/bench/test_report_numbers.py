"""What a report counts and compares, against numbers worked out by hand."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from bench import reported
from tilewright.arch import load
from tilewright.base.errors import InvalidValueError
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.bench.report import group_data
from tilewright.bench.report.columns import ResultGroup, group_records
from tilewright.bench.report.figures import (
    SizeBins,
    collect_reasons,
    compute_efficiency,
    compute_heat,
    compute_ranks,
    compute_standing,
    find_regions,
    make_bins,
)
from tilewright.bench.report.group_data import collect_group_data
from tilewright.bench.report.heat_plots import Panel, plot_heat_maps
from tilewright.bench.report.highlights import compute_roofline, describe_coverage, find_time_highlights
from tilewright.bench.report.rows import build_problems_grid, collect_counters, pick_rows, round_value
from tilewright.bench.report.sections import describe_software
from tilewright.ops import gemm, kernel_of
from tilewright.ops.problem_values import dump_problem
from tilewright.select.portfolio import choose_portfolio

KERNELS = [kernel.slug for kernel in reported.gemm_kernels()[:6:2]]  # 256x128x32, 128x256x32, 128x128x32
PROBLEMS = [dump_problem(gemm.Problem(m=m, n=64, k=64, dtype="fp16", layout="rcr")) for m in (64, 128, 4096)]


def record(kernel: int, problem: int, us: float | None, status: str = "ok", message: str = "") -> Record:
    task = Task(op="gemm", arch="gfx942", kernel=KERNELS[kernel], problem=PROBLEMS[problem], device="gpu:0")
    if us is None:
        return Record(task=task, status=status, message=message)
    times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=3, warmups=1)
    return Record(task=task, status="ok", kind="time", times=times)


# us:      m=64   m=128  m=4096
# kernel 0  10     20     wrong
# kernel 1  20     10     40
# kernel 2  40     unsup. 10
RECORDS = [
    *(record(0, 0, 10), record(0, 1, 20), record(0, 2, None, "wrong", "7 of 9 elements are off")),
    *(record(1, 0, 20), record(1, 1, 10), record(1, 2, 40)),
    *(record(2, 0, 40), record(2, 1, None, "unsupported", "no"), record(2, 2, 10)),
]


@pytest.fixture(scope="module")
def group() -> ResultGroup:
    (found,) = group_records(RECORDS)
    return found


def by_pair(group: ResultGroup, values: np.ndarray) -> dict[tuple[int, int], float]:
    """Values by the number of their kernel and problem, as RECORDS has them."""
    return {
        (KERNELS.index(group.kernels[k]), PROBLEMS.index(group.problems[p])): float(value)
        for k, p, value in zip(group.kernel, group.problem, values, strict=True)
    }


def test_groups_are_what_can_be_compared() -> None:
    other = [replace(r, task=replace(r.task, cold=True)) for r in RECORDS[:1]]
    second_gpu = [replace(r, task=replace(r.task, device="gpu:3")) for r in RECORDS[4:]]
    groups = group_records([*RECORDS[:4], *second_gpu, *other, *reported.gemm_counters()])
    assert [(g.where.device, g.where.cold, g.where.kind, len(g)) for g in groups] == [
        ("emulated:gfx942", False, "counters", 210),
        ("gpu", False, "time", 9),
        ("gpu", True, "time", 1),
    ]


def test_counters_of_each_record_stay_with_it() -> None:
    (group,) = group_records(reversed(reported.gemm_counters()))
    wanted = {(r.task.kernel, r.task.problem): r.counters for r in reported.gemm_counters()}
    found = collect_counters(group)
    for i in range(len(group)):
        own = wanted[group.kernels[group.kernel[i]], group.problems[group.problem[i]]]
        if not own:
            assert np.isnan(found["cache_lines"][i])
            assert np.isnan(found["instructions"][i])
            continue
        assert found["cache_lines"][i] == own["cache_lines"]
        assert found["instructions"][i] == own["instructions_matrix"] + own["instructions_valu"]


def test_records_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"1 more records than results.*data merge"):
        group_records([*RECORDS, RECORDS[0]])
    timed = replace(RECORDS[0], task=replace(RECORDS[0].task, device="emulated:gfx942"))
    with pytest.raises(InvalidValueError, match="holds time, but such a device measures counters"):
        group_records([timed])
    counted = replace(reported.gemm_counters()[0], task=RECORDS[0].task)
    with pytest.raises(InvalidValueError, match="holds counters, but such a device measures time"):
        group_records([counted])


def test_shares_and_ranks(group: ResultGroup) -> None:
    shares = by_pair(group, compute_efficiency(group, group.us))
    assert shares[0, 0] == shares[1, 1] == shares[2, 2] == 1
    assert (shares[1, 0], shares[2, 0], shares[0, 1], shares[1, 2]) == (0.5, 0.25, 0.5, 0.25)
    assert np.isnan(shares[0, 2])
    assert np.isnan(shares[2, 1])
    place = by_pair(group, compute_ranks(group, group.us))
    assert [place[k, 0] for k in range(3)] == [0, 1, 2]
    assert [place[k, 1] for k in range(3)] == [1, 0, 2]
    assert [place[k, 2] for k in range(3)] == [2, 1, 0]


def test_a_least_value_of_zero_is_best(group: ResultGroup) -> None:
    values = np.where(group.us == 10, 0.0, group.us)
    shares = by_pair(group, compute_efficiency(group, values))
    assert (shares[0, 0], shares[1, 0]) == (1, 0)


def test_a_kernel_is_judged_by_what_it_was_tried_on(group: ResultGroup) -> None:
    found = compute_standing(group, compute_efficiency(group, group.us))
    mine = [group.kernels.index(slug) for slug in KERNELS]
    assert found.tried[mine].tolist() == [3, 3, 2]  # what a kernel is not made for does not count
    assert found.right[mine].tolist() == [2, 3, 2]
    assert found.failed[mine].tolist() == [1, 0, 0]
    assert found.wins[mine].tolist() == [1, 1, 1]
    assert found.mean[mine] == pytest.approx([0.5, 1.75 / 3, 0.625])
    assert [KERNELS.index(group.kernels[k]) for k in found.order] == [2, 1, 0]


def test_a_heat_map_says_why_a_cell_is_empty(group: ResultGroup) -> None:
    shares = compute_efficiency(group, group.us)
    found = compute_heat(group, collect_group_data(group), shares, compute_standing(group, shares).order)
    nan = np.nan
    np.testing.assert_array_equal(found.mean, [[0.25, nan, 1], [0.5, 1, 0.25], [1, 0.5, nan]])
    np.testing.assert_array_equal(found.failed, [[0, 0, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(found.apart, [[0, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_columns_of_a_large_heat_map_are_problems_of_like_work() -> None:
    (group,) = group_records(reported.many(3000, 300))
    shares = compute_efficiency(group, group.us)
    found = compute_heat(group, collect_group_data(group), shares, compute_standing(group, shares).order)
    assert found.mean.shape == (10, 120)
    assert found.members.sum() == 300
    flops = collect_group_data(group).flops
    for column in range(119):
        assert flops[found.columns == column].max() <= flops[found.columns == column + 1].min()
    one = found.columns == 17
    rows = (group.kernel == found.kernels[4]) & one[group.problem]
    assert found.mean[4, 17] == pytest.approx(np.nanmean(shares[rows]))


def test_the_best_tile_of_a_region(group: ResultGroup) -> None:
    facts = collect_group_data(group)
    sizes = make_bins("m", facts.sizes["m"])
    assert sizes is not None
    assert sizes.edges[[0, -1]].tolist() == [64, 8192]
    everywhere = SizeBins("n", np.array([64.0, 128.0]), np.zeros(3, np.int32))
    found = find_regions(group, facts.compared["tile"], group.us, sizes, everywhere)
    (row,) = found.best
    named = {int(edge): found.values[best] for edge, best in zip(sizes.edges, row, strict=False) if best >= 0}
    assert named == {64: "256x128x32", 128: "128x256x32", 4096: "128x128x32"}
    assert found.problems.sum() == 3
    # All problems in one region: 256x128x32 has 1 + 0.5 + 0, 128x256x32 0.5 + 1 + 0.25, 128x128x32 0.25 + 0 + 1.
    whole = SizeBins("m", np.array([64.0, 8192.0]), np.zeros(3, np.int32))
    assert find_regions(group, facts.compared["tile"], group.us, whole, everywhere).values == ("128x256x32",)


def test_an_axis_without_extent_is_none() -> None:
    assert make_bins("m", np.array([65.0, 90.0, 127.0])) is None
    wide = make_bins("m", np.array([1.0, 2.0**40]))
    assert wide is not None
    assert len(wide.edges) <= 13
    assert wide.bins.tolist() == [0, len(wide.edges) - 2]


def test_reasons_are_one_if_they_differ_in_numbers() -> None:
    crashed = [record(k, p, None, "crashed", f"signal 11 after {k}.{p} s") for k in range(2) for p in range(3)]
    (group,) = group_records([*crashed, *RECORDS[6:]])
    first, second = collect_reasons([group])
    assert (first.status, first.count, first.kernels, first.example) == ("crashed", 6, 2, "signal 11 after 0.0 s")
    assert (second.status, second.count) == ("unsupported", 1)


def test_a_table_of_too_many_results_has_the_best_and_the_first_failures() -> None:
    (group,) = group_records(reported.many(3000, 300))
    assert pick_rows([group], [group.us], 3000).count == 3000
    picked = pick_rows([group], [group.us], 1000)
    (rows,) = picked.rows
    failed = {(int(group.kernel[i]), int(group.status[i])) for i in np.flatnonzero(rows & ~group.ok)}
    assert failed == set(zip(group.kernel[~group.ok].tolist(), group.status[~group.ok].tolist(), strict=True))
    place = compute_ranks(group, group.us)
    assert picked.text.startswith("the 3 best kernels of each problem, and the first failure of each kernel")
    assert sorted(place[rows & group.ok].tolist()) == sorted([0, 1, 2] * 300)
    few = pick_rows([group], [group.us], 100)
    assert 90 <= few.count <= 100
    assert few.text.startswith("the best kernel of 98 of 300 problems, evenly spaced")


def test_numbers_are_short_and_whole_ones_exact() -> None:
    assert [round_value(value) for value in (1 / 3, 123456.0, 2.0**40, float("nan"))] == [0.3333, 123456, 2**40, None]


def test_words_tell_kernels_and_problems_apart(group: ResultGroup) -> None:
    facts = collect_group_data(group)
    assert facts.problem_words == ("m=128", "m=4096", "m=64")
    assert facts.problem_shared == "n=64 k=64 dtype_a=fp16 dtype_b=fp16 dtype_c=fp16 layout=rcr"
    assert set(facts.kernel_words) == {"b256x128x32", "b128x256x32", "b128x128x32"}
    assert "compv3" in facts.kernel_shared
    # Names of kernels that differ in nothing but the digest: of a version with other fields.
    old = [replace(r, task=replace(r.task, kernel=f"{KERNELS[0][:-12]}{'0' * 11}{i}")) for i, r in enumerate(RECORDS)]
    (again,) = group_records([*old[:1], *RECORDS[3:5]])
    assert len(set(collect_group_data(again).kernel_words)) == 2
    (twins,) = group_records([RECORDS[0], old[0]])
    assert len(set(collect_group_data(twins).kernel_words)) == 2


@pytest.mark.parametrize(
    ("fields", "compared"),
    [
        ({"tile": "block"}, {"tile": ("128x128x32", "128x256x32", "256x128x32")}),
        ({"pipeline": "pipeline"}, {"pipeline": ("compv3",) * 3}),
        ({"groups": "wave_groups", "padding": "pad_k"}, {"groups": ("1",) * 3, "padding": ("false",) * 3}),
        ({}, {"kernel": ("b128x128x32", "b128x256x32", "b256x128x32")}),
    ],
)
def test_the_op_declares_what_is_compared(
    group: ResultGroup, fields: dict[str, str], compared: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_data, "find_op", lambda _: replace(gemm.OP, report_fields=fields))
    assert collect_group_data(group).compared == compared


def test_kernels_are_compared_if_an_old_name_lacks_the_field(group: ResultGroup) -> None:
    old = replace(RECORDS[0], task=replace(RECORDS[0].task, kernel="gemm-gfx942-standard-t128-0123456789ab"))
    (mixed,) = group_records([old, *RECORDS[3:]])
    assert list(collect_group_data(mixed).compared) == ["kernel"]


def test_software_in_words() -> None:
    assert describe_software('{"ck":"7.0","compiler":"clang 22"}') == "ck 7.0, compiler clang 22"
    assert describe_software("as recorded in May") == "as recorded in May"


def test_findings_of_times(group: ResultGroup) -> None:
    arch = load("gfx942")
    facts = collect_group_data(group)
    found = compute_standing(group, compute_efficiency(group, group.us))
    times = np.array([[10, 20, 40], [20, 10, np.nan], [np.nan, 40, 10]])  # problems × kernels, as RECORDS has them
    said = {each.about: each for each in find_time_highlights(group, facts, arch, found, choose_portfolio(times, 3))}
    assert said["computed"].figure == "3 of 3"
    assert (said["best single kernel"].figure, said["best single kernel"].kernel) == ("62.5 %", KERNELS[2])
    assert said["most wins"].figure == "1 of 3"
    assert (said["small set"].figure, said["small set"].text.partition(" of")[0]) == (
        *("3 kernels", "reach 95 %, 3 reach 99 %"),
    )
    # 2 × 4096 × 64 × 64 operations in 10 µs.
    assert (said["rate"].figure, "at most, for m=4096" in said["rate"].text) == ("3.355 TFLOPS", True)
    assert (said["failed"].figure, said["failed"].text) == ("1 of 9", "results: 1 wrong")


def test_a_roof_is_the_lower_of_rate_and_bandwidth(group: ResultGroup) -> None:
    arch = load("gfx942")
    facts = collect_group_data(group)
    roof = compute_roofline(facts, arch)
    assert roof == pytest.approx(facts.intensity * arch.memory.bandwidth_gbs / 1e3)  # all are small
    large = replace(facts, bytes=facts.bytes / 1e6)
    assert compute_roofline(large, arch).tolist() == [arch.peak_tflops["fp16"]] * 3
    assert np.isnan(compute_roofline(replace(facts, dtypes=("", "", "")), arch)).all()


def test_a_table_of_problems_has_the_best_kernel_of_each(group: ResultGroup) -> None:
    facts = collect_group_data(group)
    column = {
        c.name: c
        for c in build_problems_grid("p", group, facts, group.us, compute_roofline(facts, load("gfx942"))).columns
    }
    assert facts.problem_words == ("m=128", "m=4096", "m=64")
    best = column["best kernel"]
    assert [best.titles[code] for code in best.values] == [KERNELS[1], KERNELS[2], KERNELS[0]]
    assert column["µs"].values == [10, 10, 10]
    assert column["next %"].values == [50, 25, 50]
    assert column["right"].values == [2, 2, 3]
    assert all(0 < share < 100 for share in column["of roof %"].values)


def test_coverage_counts_problems_of_a_kernels_kind() -> None:
    """A kernel of one type and layout is not expected to have results for problems of another."""
    other = dump_problem(gemm.Problem(m=64, n=64, k=64, dtype="fp16", layout="rrr"))
    kernel = replace(reported.gemm_kernels()[0].config, layout="rrr")
    task = Task(op="gemm", arch="gfx942", kernel=kernel_of(kernel, "gfx942").slug, problem=other, device="gpu:0")
    (group,) = group_records([*RECORDS[:-1], replace(RECORDS[0], task=task)])
    assert collect_group_data(group).pairs == 10  # 3 × 3, and the other kernel with its problem
    assert describe_coverage(group, collect_group_data(group))[1] == (
        "90 %: 9 of 10 pairs of a kernel and a problem of its kind have a result. 6 more of 4 × 4 do not count: "
        "kernel and problem have different kinds"
    )
    old = replace(RECORDS[0], task=replace(RECORDS[0].task, kernel=f"{KERNELS[0][:-12]}{'0' * 12}"))
    (group,) = group_records([*RECORDS, old])
    said = describe_coverage(group, collect_group_data(group))[1]
    assert said.startswith("10 of 4 × 3 pairs have a result; the kind of some kernels")


def test_places_of_a_picture_are_where_it_has_them(group: ResultGroup) -> None:
    """The colour in the middle of each cell is that of the value which the page says for this place."""
    shares = compute_efficiency(group, group.us)
    facts = collect_group_data(group)
    found = compute_heat(group, facts, 100 * shares, compute_standing(group, shares).order)
    drawn = plot_heat_maps([Panel(found, "%", 0, 100, "YlGnBu")], facts.kernel_words, facts.problem_words)
    (spot,) = drawn.spots
    assert spot["rows"] == ["b128x128x32", "b128x256x32", "b256x128x32"]
    assert spot["columns"] == ["m=64", "m=128", "m=4096"]
    (panel,) = spot["panels"]
    assert panel["values"] == [25, None, 100, 50, 100, 25, 100, 50, None]
    assert [spot["statuses"][s] if s >= 0 else "" for s in spot["status"]] == ["", "unsupported", *[""] * 6, "wrong"]
    pixels = imread(io.BytesIO(drawn.png))
    high, wide = pixels.shape[:2]
    left, top, right, bottom = panel["box"]
    colours: dict[float | None, set[tuple[int, ...]]] = {}
    for cell, value in enumerate(panel["values"]):
        row, column = divmod(cell, 3)
        x, y = left + (column + 0.25) / 3 * (right - left), top + (row + 0.25) / 3 * (bottom - top)
        colours.setdefault(value, set()).add(tuple((255 * pixels[int(y * high), int(x * wide), :3]).astype(int)))
    assert all(len(found) == 1 for value, found in colours.items() if value is not None)
    brightness = [sum(next(iter(colours[value]))) for value in (25, 50, 100)]
    assert brightness == sorted(brightness, reverse=True)  # dark is best
    assert colours[None] == {(228, 228, 228), (246, 213, 210)}  # grey: not made for it; red: failed
