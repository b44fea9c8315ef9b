"""Trees without LightGBM: the same bits as LightGBM's own prediction, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tilewright.base.errors import FileFormatError

np = pytest.importorskip("numpy")
lightgbm = pytest.importorskip("lightgbm")

from tilewright.select.forest import Forest, read_forest  # noqa: E402

NAMES = tuple(f"f{i}" for i in range(12))


def trained(seed: int = 0, digits: int = 6, rounds: int = 60, **options: Any) -> Any:
    """A model of noise and a few waves; few digits make many rows lie on thresholds."""
    random = np.random.default_rng(seed)
    rows = np.round(random.normal(size=(2_000, len(NAMES))), digits)
    wanted = np.sin(3 * rows[:, 0]) + rows[:, 1] * rows[:, 2] + 0.1 * random.normal(size=len(rows))
    settings = {"objective": "l2", "num_threads": 1, "verbose": -1, "seed": seed, "deterministic": True, **options}
    if "objective" in options and options["objective"] == "binary":
        wanted = (wanted > 0).astype(float)
    return lightgbm.train(settings, lightgbm.Dataset(rows, wanted, feature_name=list(NAMES)), rounds)


def rows_for(forest: Forest, count: int, seed: int) -> Any:
    """Random rows; a third of them hits a threshold exactly, some of the others zero and what is next to it."""
    random = np.random.default_rng(seed)
    rows = np.round(random.normal(size=(count, len(NAMES))), 2)
    nodes = random.integers(len(forest.feature), size=count // 3)
    rows[np.arange(count // 3), forest.feature[nodes]] = forest.threshold[nodes]
    places = random.integers(count // 3, count, size=count // 5)
    near_zero = np.array([0.0, -0.0, 1e-35, -1e-35, 1.1e-35, -1.1e-35, 5e-324])
    rows[places, random.integers(len(NAMES), size=len(places))] = random.choice(near_zero, size=len(places))
    return rows


@pytest.mark.parametrize(
    ("seed", "digits", "options"),
    [
        (0, 6, {"num_leaves": 15, "feature_fraction": 0.6, "bagging_fraction": 0.7, "bagging_freq": 1}),
        (1, 1, {"num_leaves": 63, "min_data_in_leaf": 2}),
        (2, 0, {"num_leaves": 31, "max_bin": 15}),
        (3, 6, {"num_leaves": 7, "objective": "huber", "rounds": 300}),
        (4, 6, {"num_leaves": 2}),
    ],
)
def test_ten_thousand_rows_have_the_bits_of_lightgbm(seed: int, digits: int, options: dict[str, Any]) -> None:
    model = trained(seed, digits, **options)
    forest = read_forest(model.model_to_string(), NAMES)
    rows = rows_for(forest, 10_000, seed)

    assert np.array_equal(forest.predict(rows), model.predict(rows, num_threads=1))
    assert np.array_equal(forest.predict(rows[:1]), model.predict(rows[:1], num_threads=1))


def test_trees_without_a_split_are_constants() -> None:
    model = trained(rounds=3, min_data_in_leaf=5_000)
    forest = read_forest(model.model_to_string(), NAMES)
    rows = np.zeros((3, len(NAMES)))

    assert forest.trees > 0
    assert len(forest.feature) == 0
    assert np.array_equal(forest.predict(rows), model.predict(rows))


def test_no_rows_and_no_trees() -> None:
    text = trained(rounds=2).model_to_string()
    forest = read_forest(text, NAMES)
    treeless = read_forest(text.partition("\nTree=0")[0] + "\nend of trees\n", NAMES)

    assert forest.predict(np.zeros((0, len(NAMES)))).shape == (0,)
    assert treeless.predict(np.ones((2, len(NAMES)))).tolist() == [0, 0]


@pytest.mark.parametrize("wrong", [np.zeros(12), np.zeros((2, 11)), np.full((1, 12), np.nan), np.full((1, 12), np.inf)])
def test_rows_must_have_every_feature_and_nothing_missing(wrong: Any) -> None:
    forest = read_forest(trained(rounds=2).model_to_string(), NAMES)

    with pytest.raises(ValueError, match=r"expected \(rows, 12 features\)|f0 of row 0 is (nan|inf): must be finite"):
        forest.predict(wrong)


def refusal(text: str, features: Sequence[str] = NAMES) -> str:
    with pytest.raises(FileFormatError) as caught:
        read_forest(text, features, "model-0.txt")
    return str(caught.value)


def test_models_that_need_more_than_comparisons_are_refused() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 8, size=(2_000, len(NAMES))).astype(float)
    wanted = np.isin(rows[:, 0], (1, 4, 5)) + 0.1 * random.normal(size=len(rows))
    quiet = {"verbose": -1, "num_threads": 1}
    data = lightgbm.Dataset(rows, wanted, feature_name=list(NAMES), categorical_feature=["f0"], free_raw_data=False)
    categorical = lightgbm.train(quiet, data, 3).model_to_string()
    linear = trained(rounds=3, linear_tree=True).model_to_string()

    assert "Tree=0: has num_cat=1 categorical splits, only numerical ones are supported" in refusal(categorical)
    assert "Tree=1: has linear leaves, only constant ones are supported" in refusal(linear)
    zeros = trained(rounds=2, digits=0, zero_as_missing=True).model_to_string()
    assert "treats 0 as a missing value: train with zero_as_missing=false" in refusal(zeros)
    binary = trained(rounds=2, objective="binary").model_to_string()
    assert "objective: is 'binary sigmoid:1', which transforms the sum" in refusal(binary)
    roots = trained(rounds=2, reg_sqrt=True).model_to_string()
    assert "objective: is 'regression sqrt'" in refusal(roots)
    averaged = trained(rounds=2, boosting="rf", bagging_fraction=0.5, bagging_freq=1).model_to_string()
    assert "average_output: random forests are not supported" in refusal(averaged)


def test_other_features_are_named() -> None:
    text = trained(rounds=2).model_to_string()

    assert "feature_names: unknown: f11; missing: g" in refusal(text, (*NAMES[:11], "g"))
    assert "are in the wrong order" in refusal(text, NAMES[::-1])


def test_damaged_texts_are_refused() -> None:
    text = trained(rounds=2, num_leaves=4).model_to_string()
    cut = text.replace("left_child=", "left_child=7 ", 1)

    assert "is not a LightGBM text model" in refusal("hello")
    assert "Tree=0: left_child has 4 values, 4 leaves need 3" in refusal(cut)
    assert "decision_type 3 is not a numerical split" in refusal(text.replace("decision_type=2", "decision_type=3", 1))
    assert "version: is v9, supported: v3, v4" in refusal(text.replace("version=v4", "version=v9"))
    assert "left_child and right_child do not form a tree" in refusal(text.replace("left_child=1", "left_child=0", 1))
    assert "Tree=0: num_leaves must be an integer of at most 20 digits, got 'four'" in refusal(
        text.replace("num_leaves=4", "num_leaves=four", 1)
    )
    assert "Tree=1: has no 'num_leaves'" in refusal(text.replace("\nTree=1\nnum_leaves", "\nTree=1\nleaves", 1))
