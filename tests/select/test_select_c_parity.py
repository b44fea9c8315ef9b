"""Rankings in C against Python: numbers, estimates, features, trees, and the choice itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("lightgbm")

from ranking_in_c import Ranking, address, columns, kernels_for, random_bundle, random_problem, rows_of  # noqa: E402
from tilewright import arch as archs  # noqa: E402
from tilewright.base.errors import BundleError, InvalidValueError  # noqa: E402
from tilewright.ops import op_named  # noqa: E402
from tilewright.ops.machine.cost import Use  # noqa: E402
from tilewright.select.bundle import LOG_RATIO, RELEVANCE  # noqa: E402
from tilewright.select.c_source import rank_sources  # noqa: E402
from tilewright.select.chain import Chain  # noqa: E402
from tilewright.select.pool import Pool, fitting  # noqa: E402

GPU = "gfx942"
ROWS = 10_000
CHOICES = 500
RANKED_OPS = ("gemm", "grouped_conv")


@pytest.mark.compile
@pytest.mark.parametrize("name", RANKED_OPS)
def test_estimates_and_features_are_those_of_python(name: str, tmp_path: Path) -> None:
    op, arch = op_named(name), archs.load(GPU)
    kernels = kernels_for(op, GPU)
    ranking = Ranking(tmp_path, arch, kernels, [random_bundle(op, GPU, kernels)])
    p, k, problem_names, kernel_names = rows_of(op, kernels, GPU, ROWS, seed=1)
    facts, column = columns(p, problem_names), columns(k, kernel_names)
    assert op.cost is not None
    estimate = op.cost.estimate(facts, column, arch)
    features = op.cost.features(facts, column, estimate, arch)
    held = np.ascontiguousarray(k[:, [kernel_names.index(each) for each in ranking.read]])
    us, seen = np.zeros(ROWS), np.zeros((ROWS, len(features)))
    where = (address(p), p.shape[1], address(held), held.shape[1], ROWS)
    ranking.library.estimates(*where, address(us))
    ranking.library.features_in_c(*where, address(seen))

    assert us == pytest.approx(estimate.us, rel=1e-12, abs=0)
    wanted = np.stack([np.broadcast_to(value, ROWS) for value in features.values()], axis=1)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(seen, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.compile
@pytest.mark.parametrize("name", RANKED_OPS)
def test_problem_numbers_come_from_the_arguments(name: str, tmp_path: Path) -> None:
    op = op_named(name)
    kernels = kernels_for(op, GPU)
    ranking = Ranking(tmp_path, archs.load(GPU), kernels)
    random = np.random.default_rng(2)
    assert op.cost is not None
    assert op.execution is not None
    for place in random.integers(len(kernels), size=2_000):
        problem = random_problem(op, kernels[place].config, random)
        wanted = op.cost.problem_numbers(problem)
        found = np.zeros(len(wanted))
        args = op.execution.arguments(problem)
        ranking.library.numbers_in_c(address(np.frombuffer(args, np.uint8)), int(place), address(found))
        assert dict(zip(wanted, found, strict=True)) == pytest.approx(dict(wanted), rel=1e-15), problem


@pytest.mark.compile
def test_ten_thousand_rows_through_the_trees_have_the_bits_of_python(tmp_path: Path) -> None:
    op = op_named("grouped_conv")
    kernels = kernels_for(op, GPU)
    bundle = random_bundle(op, GPU, kernels)
    ranking = Ranking(tmp_path, archs.load(GPU), kernels, [bundle])
    random = np.random.default_rng(3)
    rows = random.normal(size=(ROWS, len(bundle.features))) * 8
    for forest in bundle.forests:  # thresholds that are hit exactly
        nodes = random.integers(len(forest.feature), size=ROWS // 3)
        rows[random.integers(ROWS, size=len(nodes)), forest.feature[nodes]] = forest.threshold[nodes]
    found = np.zeros(ROWS)
    ranking.library.predictions(address(rows), ROWS, address(found))

    first, second = (forest.predict(rows) for forest in bundle.forests)
    assert np.array_equal(found, (first + second) / 2)


def bundles_of(op: Any, kernels: Any, kinds: str) -> list[Any]:
    if kinds == "none":
        return []
    if kinds == "two":
        last = random_bundle(op, GPU, kernels, seed=7, transform=RELEVANCE)
        return [random_bundle(op, GPU, kernels, where={"dtype_a": (kernels[0].config.dtype_a,)}), last]
    return [random_bundle(op, GPU, kernels, transform=kinds)]


@pytest.mark.compile
@pytest.mark.parametrize("kinds", ["none", LOG_RATIO, RELEVANCE, "two"])
@pytest.mark.parametrize("name", RANKED_OPS)
def test_the_choice_is_that_of_python(name: str, kinds: str, tmp_path: Path) -> None:
    op, arch = op_named(name), archs.load(GPU)
    kernels = kernels_for(op, GPU)
    bundles = bundles_of(op, kernels, kinds)
    ranking = Ranking(tmp_path, arch, kernels, bundles)
    pool = Pool.of(arch, kernels)
    chain = Chain(bundles=tuple(bundles))
    random = np.random.default_rng(4)
    compared = 0
    while compared < CHOICES:
        problem = random_problem(op, kernels[random.integers(len(kernels))].config, random)
        part = pool.part_for(problem)
        assert part is not None
        able = fitting(part, problem, pad=False)
        if len(able.places) < 2:
            continue
        compared += 1
        wanted = chain.rank(problem, arch, able).choices
        numbers, us = ranking.rank(problem, able.places)
        assert [kernels[number].slug for number in numbers] == [choice.kernel.slug for choice in wanted], problem
        assert us == pytest.approx([choice.us for choice in wanted], rel=1e-12)


@pytest.mark.compile
def test_arguments_and_kernels_that_cannot_be_are_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    op, arch = op_named("gemm"), archs.load(GPU)
    kernels = kernels_for(op, GPU, 8)
    ranking = Ranking(tmp_path, arch, kernels)
    assert op.execution is not None
    args = op.execution.arguments(op.problem_type(**op.example_problem))
    numbers, us = np.array([3, 8], np.uint64), np.array([-1.0, -2.0])
    rank = ranking.library.tw_gemm_rank
    raw = address(np.frombuffer(args, np.uint8))

    assert rank(raw, address(numbers), 2, address(us)) == 1
    assert (numbers.tolist(), us.tolist()) == ([3, 8], [-1.0, -2.0])
    assert rank(None, address(numbers), 1, address(us)) == 1
    assert rank(raw, None, 1, address(us)) == 1
    assert rank(raw, None, 0, None) == 0
    assert rank(raw, address(numbers), 1, address(us)) == 0
    args.size -= 8
    assert rank(raw, address(numbers), 1, address(us)) == 1


def test_the_same_kernels_give_the_same_text_and_compiled_facts_count() -> None:
    op, arch = op_named("gemm"), archs.load(GPU)
    kernels = kernels_for(op, GPU, 20)
    use = Use(vgprs=256, agprs=256, sgprs=100, lds_bytes=65536, scratch_bytes=0)

    assert rank_sources(arch, kernels) == rank_sources(arch, list(kernels))
    assert rank_sources(arch, kernels) != rank_sources(arch, kernels, uses={kernels[0]: use})


def test_ops_lie_one_after_the_other() -> None:
    arch = archs.load(GPU)
    kernels = [*kernels_for(op_named("gemm"), GPU, 3), *kernels_for(op_named("grouped_conv"), GPU, 2)]
    sources = rank_sources(arch, kernels, bundles=())

    assert "FIRST    = 0," in sources["gemm"]
    assert "FIRST    = 3," in sources["grouped_conv"]
    with pytest.raises(InvalidValueError, match="kernels of gemm do not follow each other"):
        rank_sources(arch, [*kernels, kernels[0]], bundles=())


def test_an_op_without_numbers_for_c_is_left_out() -> None:
    op = op_named("fmha")
    kernels = kernels_for(op, GPU, 2)

    assert kernels
    assert (op.cost is None or op.cost.in_c is None) == (rank_sources(archs.load(GPU), kernels) == {})


def test_a_bundle_that_asks_what_kernels_do_not_tell_is_refused() -> None:
    op = op_named("grouped_conv")
    kernels = kernels_for(op, GPU, 4)
    bundle = random_bundle(op, GPU, kernels, where={"g": (1,)})

    with pytest.raises(BundleError, match="it is for problems of some g, and the kernels of grouped_conv have no such"):
        rank_sources(archs.load(GPU), kernels, bundles=[bundle])
    assert "learned" not in rank_sources(archs.load("gfx950"), kernels, bundles=[bundle])["grouped_conv"]
    assert "learned" not in rank_sources(archs.load(GPU), kernels, bundles=[replace(bundle, op="gemm")])["grouped_conv"]
