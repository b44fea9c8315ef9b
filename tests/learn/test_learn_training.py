"""Training finds what estimates miss, sees no problem that it is judged on, and gives the same bytes every time."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from learn import synthetic
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.base.events import Notice, add_listener
from tilewright.learn import evaluation, training
from tilewright.learn.dataset import Dataset, build_dataset
from tilewright.learn.efficiency import evaluate_scores
from tilewright.learn.splits import check_apart
from tilewright.learn.training import reduce_model_text
from tilewright.learn.training_config import GRID, TrainingConfig, draw_variants
from tilewright.select.forest import read_forest

QUICK = TrainingConfig(rounds=40, patience=0, seeds=(0,), least_in_leaf=5)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return build_dataset(synthetic.table(), "gemm", synthetic.ARCH)


def test_the_factor_is_found_on_problems_that_were_not_seen(data: Dataset) -> None:
    found = evaluation.evaluate_config(data, QUICK)
    for judged in found.judged:
        assert judged.figures["analytical"].mean < 0.9
        assert judged.figures["learned"].mean > 0.97
        assert judged.figures["learned"].mean > judged.figures["nearest neighbour"].mean
    # Without weights: with them, the factor of kernels that are far from the best is of no interest.
    scores, _ = evaluation.predict_held_out(data, replace(QUICK, weight_power=0.0), evaluation.split_by_problem(data))
    learned = scores - np.log(data.estimate)
    for factor in (2.0, 0.4):
        apart = [
            learned[mine & off].mean() - learned[mine & ~off].mean()
            for mine, off in _sides(data)
            if np.isclose(_factors(data)[mine & off], factor).all()
        ]
        assert np.median(apart) == pytest.approx(np.log(factor), abs=0.15)


def _factors(data: Dataset) -> np.ndarray:
    pairs = zip(data.problem, data.kernel, strict=True)
    return np.array([synthetic.factor(data.kernels[k], data.problems[p]) for p, k in pairs])


def _sides(data: Dataset) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each problem: its rows, and all rows that are off their estimate."""
    off = ~np.isclose(_factors(data), 1)
    return [(data.problem == i, off) for i in range(len(data.problems))]


@pytest.mark.parametrize("kind", ["regressor", "ranker"])
def test_the_same_data_and_recipe_give_the_same_bytes(data: Dataset, kind: str) -> None:
    recipe = replace(QUICK, kind=kind, rounds=15, patience=5)
    texts = [training.train(data, recipe).texts for _ in range(2)]
    assert texts[0] == texts[1]
    other = training.train(data, replace(recipe, seeds=(1,))).texts
    assert other != texts[0]


def test_a_ranker_orders_kernels(data: Dataset) -> None:
    model = training.train(data, replace(QUICK, kind="ranker"))
    assert evaluate_scores(data.problem, data.us, training.compute_scores(model, data)).mean > 0.97
    assert evaluate_scores(data.problem, data.us, -training.compute_scores(model, data)).mean < 0.7


def test_no_problem_is_on_both_sides(data: Dataset) -> None:
    for split in evaluation.make_default_splits(data):
        check_apart(data.points, split.fold, training.NEAR)
        assert len(split.fold) == len(data.problems)


def test_near_duplicates_stay_together() -> None:
    twins = [replace(problem, m=problem.m + 1 if problem.m > 64 else problem.m) for problem in synthetic.problems(40)]
    kernel = synthetic.kernels()[0]
    rows = [synthetic.measurement(kernel, p, 5.0) for p in [*synthetic.problems(40), *twins]]
    data = build_dataset(synthetic.make_table(rows), "gemm", synthetic.ARCH)
    place = {problem: i for i, problem in enumerate(data.problems)}
    pairs = [(place[a], place[b]) for a, b in zip(synthetic.problems(40), twins, strict=True)]
    near = [(a, b) for a, b in pairs if np.abs(data.points[a] - data.points[b]).max() <= training.NEAR]
    assert len(near) > 20
    for split in (evaluation.split_by_problem(data), evaluation.split_by_cluster(data)):
        assert all(split.fold[a] == split.fold[b] for a, b in near)


def test_a_fold_is_scored_by_a_model_that_was_not_told_it(data: Dataset) -> None:
    """Times of one fold are turned upside down: its own scores must not change, those of the others may."""
    split = evaluation.split_by_problem(data, folds=5)
    here = split.get_row_folds(data) == 0
    wrong = replace(data, us=np.where(here, 1e4 / data.us, data.us))
    plain, _ = evaluation.predict_held_out(data, QUICK, split)
    turned, _ = evaluation.predict_held_out(wrong, QUICK, split)
    np.testing.assert_array_equal(plain[here], turned[here])
    assert not np.array_equal(plain[~here], turned[~here])


def test_rounds_are_counted_inside_the_training_data(data: Dataset) -> None:
    stopped = training.find_best_rounds(data, replace(QUICK, rounds=400, patience=10, learning_rate=0.3))
    assert 1 <= stopped < 400
    model = training.train(data, replace(QUICK, rounds=400, patience=10, learning_rate=0.3))
    assert (model.rounds, model.trees) == (stopped, stopped)
    assert training.find_best_rounds(data, QUICK) == 40


def test_tuning_is_bounded_and_repeatable(data: Dataset) -> None:
    assert draw_variants(QUICK, 4) == draw_variants(QUICK, 4)
    assert draw_variants(QUICK, 4)[0] == QUICK
    assert len(set(draw_variants(QUICK, 7))) == 7
    assert all(getattr(v, name) in GRID[name] for v in draw_variants(QUICK, 7)[1:] for name in GRID)
    # Tiny steps learn nothing: every other recipe must be preferred.
    bad = replace(QUICK, learning_rate=0.0001)
    assert training.tune_config(data, bad, 4) in draw_variants(bad, 4)[1:]


def test_too_few_problems_are_refused_or_said(data: Dataset) -> None:
    few = data.select_problems(np.arange(12))
    with pytest.raises(InvalidValueError, match="there are 12 problems of gemm on gfx942; below 40"):
        training.train(few, QUICK)
    said = []
    with add_listener(said.append):
        training.train(few, QUICK, few=True)
    assert [event.message.partition(";")[0] for event in said if isinstance(event, Notice)] == [
        "there are 12 problems of gemm on gfx942"
    ]


def test_the_target_is_centred(data: Dataset) -> None:
    ratio = training.compute_target(data)
    medians = [np.median(ratio[data.problem == i]) for i in np.unique(data.problem)]
    np.testing.assert_allclose(medians, 0, atol=1e-12)


def test_a_plain_text_loads_in_lightgbm_and_in_ours(data: Dataset) -> None:
    whole = lightgbm.train(
        {"objective": "regression", "verbose": -1, "num_threads": 1, "seed": 3},
        lightgbm.Dataset(data.features, np.log(data.us), feature_name=list(data.names)),
        30,
    )
    text = whole.model_to_string()
    short = reduce_model_text(text)
    assert len(short) < 0.7 * len(text)
    assert "parameters" not in short
    expected = whole.predict(data.features)
    np.testing.assert_array_equal(lightgbm.Booster(model_str=short).predict(data.features), expected)
    np.testing.assert_allclose(read_forest(short, data.names).predict(data.features), expected, rtol=1e-12)
    assert reduce_model_text(short) == short


def test_models_are_the_mean_of_their_seeds(data: Dataset) -> None:
    recipe = replace(QUICK, rounds=10, seeds=(0, 1, 2))
    model = training.train(data, recipe)
    assert len(model.texts) == 3
    assert len({hashlib.sha256(text.encode()).hexdigest() for text in model.texts}) == 3
    single = [training.predict(training.train(data, replace(recipe, seeds=(seed,))), data) for seed in recipe.seeds]
    np.testing.assert_allclose(training.predict(model, data), np.mean(single, axis=0), rtol=1e-12)


def test_recipes_are_a_closed_world() -> None:
    assert TrainingConfig.from_json(QUICK.to_json()) == QUICK
    with pytest.raises(UnknownValueError, match="unknown kind of model 'forest'"):
        TrainingConfig(kind="forest")
    with pytest.raises(UnknownValueError, match="unknown field of a recipe 'depth'"):
        TrainingConfig.from_json({"depth": 3, "seeds": [0]})
    for wrong in ({"rounds": 0}, {"row_share": 0.0}, {"learning_rate": 2.0}, {"seeds": ()}):
        with pytest.raises(InvalidValueError):
            TrainingConfig(**wrong)


def test_a_learning_curve_rises_to_what_all_problems_give(data: Dataset) -> None:
    few, many = evaluation.compute_learning_curve(data, QUICK, (4, 48), repeats=2)
    assert (few.problems, many.problems) == (4, 48)
    assert few.learned < many.learned
    assert many.learned > many.analytical + 0.05
