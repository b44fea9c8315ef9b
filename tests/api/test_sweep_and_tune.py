"""`tw.sweep` and `tw.tune` as one call each: on a replayed device, so that nothing is built or timed here."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import GPU, KERNELS, PROBLEMS, SET, WINNER, write_recording

import tilewright as tw
from tilewright.base.errors import InvalidValueError, JournalError, MissingExtraError
from tilewright.bench.budget import estimate_plan
from tilewright.bench.calls import make_plan
from tilewright.bench.timing import TimingSettings

DEVICE = "replay:mi300x"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("recording") / "journal")


def test_a_sweep_is_one_call_and_resumes(recording: Path, tmp_path: Path) -> None:
    first = tw.sweep(SET, PROBLEMS, DEVICE, replay=recording, out=tmp_path / "out")
    again = tw.sweep(SET, PROBLEMS, DEVICE, replay=recording, out=tmp_path / "out")

    assert first.complete and first.summary.done == len(KERNELS) * len(PROBLEMS) == len(first)
    assert (again.summary.done, again.summary.known) == (0, len(first))
    assert again.folder == tmp_path / "out"
    with pytest.raises(JournalError):
        tw.sweep(SET, PROBLEMS[:1], DEVICE, replay=recording, out=tmp_path / "out")


def test_results_as_rows_and_failures(recording: Path) -> None:
    found = tw.sweep(KERNELS[:2], PROBLEMS[:2], DEVICE, replay=recording)

    rows = {(row["kernel"], row["m"]): row for row in found.rows}
    assert set(rows) == {(kernel.slug, problem.m) for kernel in KERNELS[:2] for problem in PROBLEMS[:2]}
    for row in rows.values():
        assert (row["status"] == "ok") == (row["us"] is not None)
    assert [record.status for record in found.failures] == [row["status"] for row in found.rows if row["us"] is None]


def test_results_are_short_at_a_prompt_and_a_table_in_a_notebook(recording: Path) -> None:
    found = tw.sweep(SET, PROBLEMS, DEVICE, replay=recording)
    assert repr(found).startswith(f"SweepResult({len(KERNELS)} kernels × 4 problems: ")
    assert len(repr(found)) < 240
    assert found._repr_html_().count("<tr>") == 21  # the header, and the first 20
    assert f"… and {len(found) - 20} more" in found._repr_html_()


def test_results_as_tables_of_other_libraries(recording: Path) -> None:
    pytest.importorskip("pyarrow")
    found = tw.sweep(KERNELS[:2], PROBLEMS[:2], DEVICE, replay=recording)
    table = found.to_arrow()
    assert table.num_rows == len(found)
    assert {"kernel", "problem", "status", "us", "tflops"} <= set(table.column_names)
    try:
        import pandas as pd
    except ModuleNotFoundError:
        with pytest.raises(MissingExtraError, match="pip install pandas"):
            found.to_pandas()
    else:
        assert isinstance(found.to_pandas(), pd.DataFrame)


def test_a_temporary_folder_lives_as_long_as_the_results(recording: Path) -> None:
    found = tw.sweep(KERNELS[:1], PROBLEMS[:1], DEVICE, replay=recording)
    folder = found.folder
    assert folder.is_dir() and len(found) == 1
    del found
    assert not folder.exists()


def test_a_replayed_device_knows_kernels_and_problems(recording: Path) -> None:
    found = tw.sweep(None, None, DEVICE, replay=recording)
    assert {row["m"] for row in found.rows} == {problem.m for problem in PROBLEMS}


def test_problems_may_be_mappings_or_a_file(recording: Path, tmp_path: Path) -> None:
    given = [{"m": problem.m, "n": 4096, "k": 4096} for problem in PROBLEMS[:2]]
    (tmp_path / "shapes.csv").write_text("m,n,k\n512,4096,4096\n1024,4096,4096\n", encoding="utf-8")
    keys = [
        sorted(record.key for record in tw.sweep(KERNELS[:2], problems, DEVICE, replay=recording))
        for problems in (PROBLEMS[:2], given, tmp_path / "shapes.csv", str(tmp_path / "shapes.csv"))
    ]
    assert all(each == keys[0] for each in keys)


@pytest.mark.parametrize("share", [0.25, pytest.param(0.5, marks=pytest.mark.deep)])
def test_a_budget_is_kept_and_continued(recording: Path, tmp_path: Path, share: float) -> None:
    total = estimate_plan(make_plan(SET, PROBLEMS, DEVICE, TimingSettings(), recording).plan).total
    some = tw.sweep(SET, PROBLEMS, DEVICE, replay=recording, out=tmp_path / "out", budget=share)
    same = tw.sweep(SET, PROBLEMS, DEVICE, replay=recording, out=tmp_path / "out", budget=share)
    all_ = tw.sweep(SET, PROBLEMS, DEVICE, replay=recording, out=tmp_path / "out")

    assert 0 < len(some) <= round(share * total)
    assert same.summary.done == 0
    assert all_.summary.known == len(some)
    assert len(all_) == len(KERNELS) * len(PROBLEMS)


def test_tuning_finds_the_winner_with_a_part_of_the_measurements(recording: Path, tmp_path: Path) -> None:
    """The winner is not the first by estimate, and half of the measurements find it on every problem."""
    found = tw.tune(SET, PROBLEMS, DEVICE, replay=recording, budget=0.5)
    full = tw.tune(SET, PROBLEMS, DEVICE, replay=recording)

    assert {each.winner.kernel for each in full.problems} == {WINNER}
    assert {each.winner.kernel for each in found.problems} == {WINNER}
    assert sum(len(each.us) for each in found.problems) < sum(len(each.us) for each in full.problems)
    assert found.gains.times_faster is not None and found.gains.times_faster > 1.5
    assert len(repr(found)) < 240 and "1 kernel wins 4 problems" in repr(found)
    assert found._repr_html_().count("<tr>") == 5

    found.save(tmp_path / "winners.json")
    for tuned in (found.table, tmp_path / "winners.json"):
        best = tw.Registry.of(SET, GPU).with_tuned(tuned).select(PROBLEMS[0], GPU, built=False).best
        assert best.kernel == WINNER


def test_what_cannot_be_measured_is_an_error_before_anything_is_built(recording: Path) -> None:
    with pytest.raises(InvalidValueError, match="emulated:gfx942 has counters only"):
        tw.tune(SET, PROBLEMS, "emulated:gfx942")
    with pytest.raises(InvalidValueError, match="emulated:gfx942 has counters only"):
        tw.tune(SET, PROBLEMS, tw.Device("emulated:gfx942"))
    with pytest.raises(InvalidValueError, match="pass it alone, with replay="):
        tw.sweep(SET, PROBLEMS, DEVICE)
    with pytest.raises(InvalidValueError, match="a share must be above 0 and at most 1"):
        tw.sweep(SET, PROBLEMS, DEVICE, replay=recording, budget=1.5)
    with pytest.raises(InvalidValueError, match="3 is not a problem of gemm"):
        tw.sweep(SET, 3, DEVICE, replay=recording)
    with pytest.raises(InvalidValueError, match="no problem matches these kernels"):
        tw.sweep(SET, tw.gemm.Problem(m=8, n=8, k=8, dtype="bf16", layout="rcr"), DEVICE, replay=recording)
    with pytest.raises(InvalidValueError, match="has none of these kernels"):
        tw.sweep("fp16_rcr_preshuffle", PROBLEMS, DEVICE, replay=recording)
    with pytest.raises(InvalidValueError, match="one kernel and one problem, got 10 kernels and 4 problems"):
        tw.measure(SET, PROBLEMS, "emulated:gfx942")
