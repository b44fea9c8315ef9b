"""The comparison of two versions: drawn inputs, records of the sources, and differences with their names."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

import version_configs
from compare_versions import compare
from tilewright.ops import find_op, load_problem
from version_configs import Sampler
from version_inputs import ProblemSampler, make_invalid
from version_records import SECTIONS, record

VERDICT = {"T201": {"slug": "s", "message": "m is 3", "field": "block", "nearest": "None"}}
KERNEL = {"files": {"tilewright_gemm.h": "0a"}, "text": "one\ntwo\n"}


def write_records(path: Path, results: dict[str, Any], scale: float = 1.0, inputs: str = "d") -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        lines = [
            {"inputs": inputs, "scale": scale, "sources": ""},
            *([name, result] for name, result in results.items()),
        ]
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return write_records(tmp_path / "a.gz", {"gemm configs 0": VERDICT, "gemm configs 1": {}, "gemm kernels 0": KERNEL})


def test_equal_records_are_equal(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(baseline, baseline, None, [])
    assert "2 equal, 0 different" in capsys.readouterr().out


def test_a_difference_is_shown_with_its_path(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {**VERDICT["T201"], "message": "m is 4"}
    results = {"gemm configs 0": {"T201": changed}, "gemm configs 1": VERDICT, "gemm kernels 0": KERNEL}
    assert not compare(baseline, write_records(tmp_path / "b.gz", results), None, [])

    shown = capsys.readouterr().out
    assert "1 × configs T201 message" in shown and "- m is 3\n      + m is 4" in shown
    assert "1 × configs T201\n" in shown and "- absent" in shown


def test_an_expected_difference_does_not_fail(baseline: Path, tmp_path: Path) -> None:
    kernel = {**KERNEL, "files": {"tilewright_gemm.h": "1b"}}
    results = {"gemm configs 0": VERDICT, "gemm configs 1": {}, "gemm kernels 0": kernel}
    other = write_records(tmp_path / "b.gz", results)
    assert not compare(baseline, other, None, [])
    assert compare(baseline, other, None, ["kernels files *.h"])


def test_records_of_a_share_are_compared_with_all(baseline: Path, tmp_path: Path) -> None:
    part = {"gemm configs 0": VERDICT}
    assert compare(baseline, write_records(tmp_path / "part.gz", part, scale=0.5), None, [])
    assert not compare(baseline, write_records(tmp_path / "lost.gz", part), None, [])
    with pytest.raises(SystemExit, match="different inputs"):
        compare(baseline, write_records(tmp_path / "other.gz", part, inputs="e"), None, [])


@pytest.mark.slow
def test_drawn_inputs_are_legal_or_nearly_and_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_configs, "BASES", 4)
    op, drawn = find_op("gemm"), []
    for _ in range(2):
        sampler = Sampler(op, seed=1)
        configs, legal = sampler.draw_configs(400), sampler.draw_legal_rows(14)
        pairs = ProblemSampler(sampler).draw_pairs(legal, 60)
        drawn.append([configs, legal, pairs, sampler.draw_spaces(5)])
    configs, legal, pairs, spaces = drawn[0]

    assert drawn[0] == drawn[1]
    counts = [len(sampler.judge(gpu, values) or ()) for gpu, values in configs]
    assert counts.count(0) >= 60 and set(sampler.violated) == {rule.code for rule in op.rules if not rule.since}
    assert all(load_problem(op.problem_type, problem) for *_, problem in pairs)

    invalid = [[gpu, make_invalid(random.Random(3), values)] for gpu, values in legal[:2]]
    rows = dict.fromkeys(SECTIONS, legal[:2]) | {"pairs": pairs[:2], "spaces": spaces[:2], "invalid_configs": invalid}
    results = dict(record({"ops": {"gemm": rows}}, scale=1.0))
    assert results["gemm configs 0"] == {}
    assert results["gemm kernels 0"]["slug"] == results["gemm facts 0"]["slug"]
    assert results["gemm pairs 0"]["arguments"]["members"]["size"] == [0, 8]
    assert results["gemm invalid_configs 0"].keys() == {"raises"}
    assert not [name for name, result in results.items() if "raises" in result and "invalid" not in name]
