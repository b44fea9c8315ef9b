"""Times of two models of one architecture are not mixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from journalled import timed

import tilewright as tw
from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.bench.gpu_model import SingleModelCheck, filter_by_model, get_gpu_model
from tilewright.bench.journal import Journal
from tilewright.bench.record import Record
from tilewright.bench.replay import make_replay_device
from tilewright.bench.table import read_table
from tilewright.bench.tune import group_times as times_of
from tilewright.bench.versions import format_versions
from tilewright.cli.app import root
from tilewright.learn.from_records import to_measurements
from tilewright.ops import find_op
from tilewright.ops.problem_values import dump_problem

MODELS = ("AMD Instinct MI300X, 304 units", "AMD Instinct MI300A, 228 units")


def records() -> list[Record]:
    op = find_op("gemm")
    kernel = op.make_kernel(op.make_config(**op.example), "gfx942").slug
    made = []
    for model in MODELS:
        for m in (64, 128):
            problem = dump_problem(tw.gemm.Problem(m=m, n=64, k=64, dtype="fp16", layout="rcr"))
            fields = {"device": "gpu:0", "versions": to_canonical_json({"gpu": model}), "problem": problem}
            record = timed(m)
            made.append(replace(record, task=replace(record.task, op="gemm", arch="gfx942", kernel=kernel, **fields)))
    return made


def test_two_models_are_refused() -> None:
    models = SingleModelCheck()
    first, _, other, _ = records()
    models.check(first.task)
    models.check(first.task)
    with pytest.raises(InvalidValueError, match=r"MI300X.* and .*MI300A"):
        models.check(other.task)


@pytest.mark.parametrize(
    "read", [to_measurements, times_of, lambda found: make_replay_device("mi", found)], ids=["learn", "tune", "replay"]
)
def test_what_compares_times_refuses_them(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidValueError, match="two GPU models"):
        read(records())


def test_those_of_one_model_are_exported(tmp_path: Path) -> None:
    with Journal(tmp_path / "all", "w") as journal:
        for record in records():
            journal.append(record)
    out = tmp_path / "one.parquet"
    done = CliRunner().invoke(root, ["data", "export", str(tmp_path / "all"), "--out", str(out), "--gpu", "mi300a"])
    assert done.exit_code == 0, done.output
    assert {record.task.versions for record in read_table(out)} == {to_canonical_json({"gpu": MODELS[1]})}


def test_a_model_that_is_not_there_is_an_error_with_those_that_are() -> None:
    with pytest.raises(UnknownValueError, match="MI300X, 304 units"):
        list(filter_by_model(records(), "MI325"))


def test_a_replayed_device_is_of_the_model_that_was_recorded() -> None:
    device = make_replay_device("mi", records()[:2])
    assert get_gpu_model(format_versions(device)) == MODELS[0]
    untold = [replace(record, task=replace(record.task, versions="")) for record in records()[:2]]
    assert get_gpu_model(format_versions(make_replay_device("mi", untold))) is None
