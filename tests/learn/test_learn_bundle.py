"""Bundles: written the same every time, read back to the same scores, refused when they do not fit."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learn import synthetic
from tilewright import arch as archs
from tilewright.base.digest import digest_text, digest_tree
from tilewright.base.errors import BundleError, FileFormatError, TilewrightError, UnknownValueError
from tilewright.base.events import Notice, add_listener
from tilewright.learn import evaluation, training
from tilewright.learn.bundle_writer import BundleInfo, collect_problem_values, format_held_out, write_bundle
from tilewright.learn.dataset import Dataset, build_dataset
from tilewright.learn.training_config import TrainingConfig
from tilewright.ops import find_op, gemm, grouped_conv
from tilewright.ops.cost_model.cost import Facts
from tilewright.select.bundle import MANIFEST, load_builtin_bundles, read_bundle, score_kernels

QUICK = TrainingConfig(rounds=20, patience=0, seeds=(0, 1), least_in_leaf=5)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return build_dataset(synthetic.table(), "gemm", synthetic.ARCH)


def _about(data: Dataset, **held_out: Any) -> BundleInfo:
    return BundleInfo(data="made up", where=collect_problem_values(data), held_out=held_out)


@pytest.fixture(scope="module")
def folder(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "made_up"
    write_bundle(path, training.train(data, QUICK), data, _about(data))
    return path


def test_a_bundle_gives_the_scores_of_its_model(data: Dataset, folder: Path) -> None:
    bundle, arch = read_bundle(folder), archs.load(synthetic.ARCH)
    expected = training.compute_scores(training.train(data, QUICK), data)
    cost = gemm.OP.cost
    assert cost is not None
    for number in (0, 17):
        rows = np.flatnonzero(data.problem == number)
        p = Facts(**cost.problem_numbers(data.problems[number]))
        numbers = [cost.kernel_numbers(data.kernels[k].config, arch, None) for k in data.kernel[rows]]
        columns = Facts(**{name: np.array([each[name] for each in numbers]) for name in numbers[0]})
        scores = score_kernels(bundle, p, columns, cost.estimate(p, columns, arch), arch)
        np.testing.assert_allclose(scores, expected[rows], rtol=1e-12)


def test_a_ranker_gives_estimated_times_in_its_order(data: Dataset, tmp_path: Path) -> None:
    model = training.train(data, replace(QUICK, kind="ranker"))
    write_bundle(tmp_path / "ranker", model, data, _about(data))
    bundle, arch, cost = read_bundle(tmp_path / "ranker"), archs.load(synthetic.ARCH), gemm.OP.cost
    assert cost is not None
    rows = np.flatnonzero(data.problem == 3)
    p = Facts(**cost.problem_numbers(data.problems[3]))
    numbers = [cost.kernel_numbers(data.kernels[k].config, arch, None) for k in data.kernel[rows]]
    columns = Facts(**{name: np.array([each[name] for each in numbers]) for name in numbers[0]})
    scores = score_kernels(bundle, p, columns, cost.estimate(p, columns, arch), arch)
    np.testing.assert_array_equal(
        np.argsort(scores), np.argsort(training.compute_scores(model, data)[rows], kind="stable")
    )
    np.testing.assert_allclose(np.sort(np.exp(scores)), np.sort(data.estimate[rows]))


def test_equal_models_give_equal_bytes(data: Dataset, folder: Path, tmp_path: Path) -> None:
    write_bundle(tmp_path / "again", training.train(data, QUICK), data, _about(data))
    assert digest_tree(tmp_path / "again") == digest_tree(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["bundle.json", "model-0.txt", "model-1.txt"]


def test_a_bundle_is_replaced_as_a_whole_and_nothing_else_is(data: Dataset, tmp_path: Path) -> None:
    place = tmp_path / "b"
    write_bundle(place, training.train(data, QUICK), data, _about(data))
    write_bundle(place, training.train(data, replace(QUICK, seeds=(5,))), data, _about(data))
    assert sorted(path.name for path in place.iterdir()) == ["bundle.json", "model-0.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("three years")
    with pytest.raises(BundleError, match="exists and is not a model bundle"):
        write_bundle(tmp_path / "papers", training.train(data, QUICK), data, _about(data))
    assert (tmp_path / "papers" / "thesis.txt").read_text() == "three years"


def test_what_a_bundle_is_for(folder: Path) -> None:
    bundle = read_bundle(folder)
    problem = gemm.Problem(m=128, n=128, k=128, dtype="fp16", layout="rcr")
    assert bundle.applies("gemm", synthetic.ARCH, problem)
    assert not bundle.applies("gemm", "gfx950", problem)
    assert not bundle.applies("grouped_conv", synthetic.ARCH, problem)
    assert not bundle.applies("gemm", synthetic.ARCH, replace(problem, dtype_a="bf16", dtype_b="bf16", dtype_c="bf16"))


def _changed(folder: Path, place: Path, **changes: Any) -> Path:
    """A copy of a bundle with other facts in its manifest."""
    place.mkdir()
    for path in folder.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    facts = json.loads((place / MANIFEST).read_text())
    (place / MANIFEST).write_text(json.dumps({**facts, **changes}))
    return place


def _facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return facts


REFUSED = {
    "has schema 7, this version of Tilewright supports 1": lambda f: {"schema": 7},
    "is for another op: unknown op 'gem'. Did you mean 'gemm'?": lambda f: {"op": "gem"},
    "has version 99 of the features of gemm, this Tilewright has version": lambda f: {"features_version": 99},
    "only the bundle has moon; only gemm has log_m": lambda f: {
        "features": ["moon" if name == "log_m" else name for name in f["features"]]
    },
    "the bundle has the order": lambda f: {"features": f["features"][::-1]},
    "was trained when log_m of the example of gemm was 1.5; now it is": lambda f: {
        "example": {**f["example"], "log_m": 1.5}
    },
    "reads the problem field 'colour', which gemm problems lack": lambda f: {"where": {"colour": ["red"]}},
    "names the file '../model-0.txt', which is not in its folder": lambda f: {"files": {"../model-0.txt": "0"}},
    "its manifest has 000": lambda f: {"files": {"model-0.txt": "000"}},
    "names no model": lambda f: {"files": {}},
    "unknown transform.kind 'square'": lambda f: {"transform": {"kind": "square"}},
    "unknown arch 'gfx000'": lambda f: {"archs": ["gfx000"]},
    "files must be an object, got []": lambda f: {"files": []},
    "surprise: is unknown. Known: schema, op": lambda f: {"surprise": 1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_with_both_sides(folder: Path, tmp_path: Path, message: str) -> None:
    place = _changed(folder, tmp_path / "other", **REFUSED[message](_facts(folder)))
    with pytest.raises(TilewrightError) as caught:
        read_bundle(place)
    assert isinstance(caught.value, BundleError | FileFormatError | UnknownValueError)
    assert message in str(caught.value)


def test_a_changed_model_is_refused(folder: Path, tmp_path: Path) -> None:
    place = _changed(folder, tmp_path / "other")
    text = (place / "model-1.txt").read_text()
    (place / "model-1.txt").write_text(text.replace("leaf_value=", "leaf_value=1", 1))
    with pytest.raises(BundleError, match=r"model-1.txt has digest .* its manifest has .*changed or damaged"):
        read_bundle(place)


def test_a_model_of_other_features_is_refused_even_with_its_digest(folder: Path, tmp_path: Path) -> None:
    text = (folder / "model-0.txt").read_text().replace("log_m log_n", "log_n log_m")
    place = _changed(folder, tmp_path / "other", files={"model-0.txt": digest_text(text)})
    (place / "model-0.txt").write_text(text)
    with pytest.raises(FileFormatError, match="are in the wrong order"):
        read_bundle(place)


NOT_NUMBERS = ("nan", "inf", "-inf", "1e999")


@pytest.mark.parametrize("word", NOT_NUMBERS)
@pytest.mark.parametrize("key", ["leaf_value", "threshold"])
def test_a_model_whose_numbers_are_not_finite_is_refused(folder: Path, tmp_path: Path, key: str, word: str) -> None:
    text = re.sub(rf"(?m)^{key}=\S+", f"{key}={word}", (folder / "model-0.txt").read_text(), count=1)
    with pytest.raises(FileFormatError, match=f"Tree=.: {key} has 1 values that are not finite, the first is {word}"):
        read_bundle(_with_model(folder, tmp_path / "other", text))


def test_trees_that_add_up_to_no_time_are_refused(folder: Path, tmp_path: Path) -> None:
    text = re.sub(r"(?m)^leaf_value=\S+", "leaf_value=1e300", (folder / "model-0.txt").read_text())
    with pytest.raises(BundleError, match=r"can reach .*, must be at most 100 and finite"):
        read_bundle(_with_model(folder, tmp_path / "other", text))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e999"])
def test_an_example_that_is_not_finite_is_refused(folder: Path, tmp_path: Path, word: str) -> None:
    shutil.copytree(folder, tmp_path / "other")
    manifest = tmp_path / "other" / MANIFEST
    facts = json.loads(manifest.read_text())
    name = next(iter(facts["example"]))
    manifest.write_text(json.dumps(facts | {"example": facts["example"] | {name: 12345}}).replace("12345", word))
    with pytest.raises(FileFormatError, match=rf"example\.{name}: is (nan|inf): a number must be finite"):
        read_bundle(tmp_path / "other")


def _with_model(folder: Path, other: Path, text: str) -> Path:
    """A copy of a bundle with another model, which its manifest has the right digest of."""
    shutil.copytree(folder, other)
    facts = json.loads((other / MANIFEST).read_text())
    (other / "model-0.txt").write_text(text)
    (other / MANIFEST).write_text(json.dumps(facts | {"files": facts["files"] | {"model-0.txt": digest_text(text)}}))
    return other


def test_no_bundle_at_all(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a model bundle: it has no bundle\.json"):
        read_bundle(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(FileFormatError, match="must be an object, got "):
        read_bundle(tmp_path)


def test_a_bundle_is_judged_and_says_when_it_knows_the_table(data: Dataset, folder: Path) -> None:
    said: list[Any] = []
    with add_listener(said.append):
        found = evaluation.evaluate_bundle(data, read_bundle(folder))
    assert found.judged[0].figures["learned"].mean > 0.97
    assert any(isinstance(event, Notice) and "these very rows" in event.message for event in said)
    said.clear()
    other = build_dataset(synthetic.table(50, noise=0.02), "gemm", synthetic.ARCH)
    with add_listener(said.append):
        evaluation.evaluate_bundle(other, read_bundle(folder))
    assert not any(isinstance(event, Notice) for event in said)


def test_held_out_figures_are_in_the_manifest(data: Dataset, tmp_path: Path) -> None:
    found = evaluation.evaluate_config(data, replace(QUICK, seeds=(0,)))
    about = BundleInfo(data="made up", where={}, held_out=format_held_out(found))
    write_bundle(tmp_path / "b", training.train(data, QUICK), data, about)
    held_out = read_bundle(tmp_path / "b").held_out
    assert set(held_out) == {"by problem", "by cluster", "baselines"}
    assert held_out["by problem"]["mean"] == pytest.approx(
        found.get_split("by problem").figures["learned"].mean, abs=1e-4
    )
    assert set(held_out["baselines"]["by problem"]) == {"analytical", "nearest neighbour", "one best kernel", "random"}


def test_the_shipped_bundle_reads_and_applies() -> None:
    """Refused when estimates or features changed since it was trained: run research/train_bundles.py."""
    (bundle,) = load_builtin_bundles(grouped_conv.OP)
    assert bundle.name == "forward_bf16_gfx950"
    sizes = {"n": 2, "c": 64, "k": 64, "input_size": 32, "filter_size": 3, "pad": 1, "dtype": "bf16"}
    problem = grouped_conv.Problem(direction="forward", **{**sizes, "input_size": (32, 32), "filter_size": (3, 3)})
    assert bundle.applies("grouped_conv", "gfx950", problem)
    assert not bundle.applies("grouped_conv", "gfx942", problem)
    assert not bundle.applies("grouped_conv", "gfx950", replace(problem, g=2))
    assert not bundle.applies("grouped_conv", "gfx950", replace(problem, direction="backward_data"))
    assert bundle.held_out["by problem"]["mean"] >= 0.985
    assert bundle.held_out["by cluster"]["mean"] >= 0.965
    # Re-ranking a few dozen kernels must stay a matter of a millisecond or two.
    assert sum(forest.trees for forest in bundle.forests) <= 600
    assert sum(path.stat().st_size for path in _folder(bundle.name).iterdir()) < 400_000


def _folder(name: str) -> Path:
    return find_op("grouped_conv").template.parent / "bundles" / name
