"""The public convolution data: our kernels, no leakage, the figures that were promised, and the shipped bundle."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from research import conv, conv_data
from research.sources import DATA
from research.table import Line
from tilewright.learn import evaluation, training
from tilewright.learn.efficiency import evaluate_scores
from tilewright.learn.splits import check_apart
from tilewright.learn.training_config import TrainingConfig
from tilewright.ops import explain, fits, grouped_conv
from tilewright.select.bundle import MANIFEST, load_builtin_bundles

pytestmark = pytest.mark.skipif(
    not DATA.joinpath(*conv_data.FILE).is_file(), reason="the public measurements are not beside the repository"
)
FOLDER = grouped_conv.OP.template.parent / "bundles" / "forward_bf16_gfx950"


@pytest.fixture(scope="module")
def data() -> conv_data.Labelled:
    return conv_data.load()


def test_every_label_is_a_legal_kernel_that_fits_every_problem(data: conv_data.Labelled) -> None:
    assert (len(data.us), len(data.labels), len(data.data.kernels)) == (6930, 30, 13)
    assert (data.problem.max() + 1, int(data.plausible.sum()), len(data.data.problems)) == (231, 167, 230)
    for kernel in data.data.kernels:
        assert all(answer.passed for answer in explain(kernel.config, kernel.arch)), kernel.slug
        assert not any(fits(kernel.config, problem, kernel.arch) for problem in data.data.problems)


def test_a_compv5_label_cannot_be_a_kernel_of_its_own() -> None:
    config = replace(conv_data.make_labelled_kernel(64, 64, 64, "compv5").config, pipeline="compv5")
    assert {a.rule.code for a in explain(config, "gfx950") if not a.passed} == {"P305", "T204"}


def test_labels_of_one_kernel_take_equally_long(data: conv_data.Labelled) -> None:
    """What the 13 kernels rest on: their labels' times differ as one kernel's timings do, by 1 % median above 30 µs."""
    best = np.full(231, np.inf)
    np.minimum.at(best, data.problem, data.us)
    apart = np.abs(np.log(data.us / data.data.us[data.pair]))[best[data.problem] > 30]
    assert np.median(apart) < 0.01


def test_no_problem_nor_a_near_one_is_on_both_sides(data: conv_data.Labelled) -> None:
    for rows in (data.data, data.by_label):
        for split in evaluation.make_default_splits(rows):
            check_apart(rows.points, split.fold, training.NEAR)
            # Told by hand, too: the nearest problem of another fold, in its largest difference.
            gap = np.abs(rows.points[:, None] - rows.points[None]).max(2)
            gap[split.fold[:, None] == split.fold[None]] = np.inf
            assert gap.min() > training.NEAR
            fold = split.get_row_folds(rows)
            assert all(len(set(fold[data.problem == i])) == 1 for i in range(231)) if rows is data.by_label else True


def test_all_rows_are_timings_of_the_file(data: conv_data.Labelled) -> None:
    scores = np.log(data.us)
    perfect = evaluate_scores(data.problem, data.us, scores, data.label)
    assert (perfect.mean, perfect.problems) == (1, 231)


@pytest.mark.deep  # CI trains on the same data in the next test, and in tests/bench/test_end_to_end.py
def test_the_promised_figures_are_reached() -> None:
    lines = [each for each in conv.run(bounded=True) if isinstance(each, Line)]
    wanted = [each for each in lines if each.target]
    assert len(wanted) == 9
    missed = [f"{each.data} {each.split} {each.method}: {each.result}" for each in wanted if not each.reached]
    assert not missed


@pytest.mark.slow
def test_the_shipped_bundle_is_what_its_recipe_gives(data: conv_data.Labelled) -> None:
    """Trained anew by the recipe in its manifest it predicts the same. Bytes are the same on one machine only, where
    NumPy's logarithms have the same last bits: `research/train_bundles.py --check`."""
    facts = json.loads((FOLDER / MANIFEST).read_text())
    assert facts["training"]["data_digest"] == data.data.digest
    recipe = TrainingConfig.from_json(facts["training"]["recipe"])
    assert recipe == conv.KERNELS
    model = training.train(data.data, recipe)
    (bundle,) = load_builtin_bundles(grouped_conv.OP)
    shipped = np.mean([forest.predict(data.data.features) for forest in bundle.forests], axis=0)
    np.testing.assert_allclose(shipped, training.predict(model, data.data), atol=1e-6)


def test_the_shipped_models_load_in_lightgbm_itself(data: conv_data.Labelled) -> None:
    import lightgbm

    (bundle,) = load_builtin_bundles(grouped_conv.OP)
    for i, forest in enumerate(bundle.forests):
        booster = lightgbm.Booster(model_file=str(FOLDER / f"model-{i}.txt"))
        np.testing.assert_array_equal(booster.predict(data.data.features), forest.predict(data.data.features))
