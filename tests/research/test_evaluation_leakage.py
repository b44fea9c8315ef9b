"""No problem, nor a near duplicate of it, is trained on and judged: for each set of measurements, and noticed if so."""

from __future__ import annotations

import numpy as np
import pytest

from research import hipblaslt, hipblaslt_data, miopen, miopen_data, moe, moe_data, sources
from tilewright.base.errors import LeakageError
from tilewright.learn.splits import make_folds

pytestmark = pytest.mark.skipif(
    not sources.DATA.is_dir(), reason=f"the public measurements are not here: {sources.DATA}"
)


def test_clusters_of_gemms_are_apart_and_problems_are_not() -> None:
    sweep = hipblaslt_data.load()
    cluster = hipblaslt.find_clusters(sweep)
    hipblaslt.check_split(sweep, cluster)
    hipblaslt.check_split(sweep, make_folds(cluster, 5, seed=0))
    with pytest.raises(LeakageError, match="pairs of near ones"):
        hipblaslt.check_split(sweep, np.arange(len(cluster)))


def test_what_a_gemm_model_is_told_of_a_kernel_leaves_the_own_group_out() -> None:
    data = hipblaslt.make_table()
    cluster = hipblaslt.find_clusters(data.sweep)
    train, test = np.flatnonzero(cluster != 0), np.flatnonzero(cluster == 0)
    before = hipblaslt.mean_deviation(data, cluster, train, test)
    changed = data.target.copy()
    own = cluster == cluster[train[0]]
    changed[own] += np.linspace(0, 5, changed.shape[1])
    after = hipblaslt.mean_deviation(
        hipblaslt.Table(data.sweep, data.estimate, data.features, data.share, changed), cluster, train, test
    )
    assert np.allclose(before[own], after[own])
    assert not np.allclose(before[test], after[test])
    changed[test] = 99.0
    again = hipblaslt.mean_deviation(
        hipblaslt.Table(data.sweep, data.estimate, data.features, data.share, changed), cluster, train, test
    )
    assert np.allclose(after, again)


def test_configs_of_models_are_apart_and_their_scales_are_not() -> None:
    data = moe_data.load()
    moe.check_split(data, moe.group_by_config(data))
    with pytest.raises(LeakageError):
        moe.check_split(data, moe.group_by_config_and_scales(data))


@pytest.mark.slow
@pytest.mark.deep
def test_families_of_geometries_are_apart_and_problems_are_not() -> None:
    db = miopen_data.load()
    family = miopen.find_families(db)
    fold = make_folds(family, 2, seed=7)
    miopen.check_split(db, fold)
    # All batches, types and directions of a geometry are in one fold.
    geometry = db.geometry
    for each in np.unique(geometry)[::400]:
        assert len(set(fold[geometry == each].tolist())) == 1
    with pytest.raises(LeakageError):
        miopen.check_split(db, make_folds(np.arange(len(family)), 2, seed=7))
