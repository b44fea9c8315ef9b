"""Rankings in C against Python: numbers, estimates, features, trees, and the choice itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("lightgbm")

from built_kernels import in_tier_ci  # noqa: E402
from c_ranking import Ranking, address, columns, kernels_for, random_bundle, random_problem, rows_of  # noqa: E402
from tilewright import arch as archs  # noqa: E402
from tilewright.base.errors import BundleError, InvalidValueError  # noqa: E402
from tilewright.ops import OPS, find_op  # noqa: E402
from tilewright.ops.cost_model.cost import ResourceUse  # noqa: E402
from tilewright.ops.op import Op  # noqa: E402
from tilewright.select.bundle import LOG_RATIO, RELEVANCE, Bundle, load_builtin_bundles  # noqa: E402
from tilewright.select.c_source import render_rank_sources  # noqa: E402
from tilewright.select.chain import Chain  # noqa: E402
from tilewright.select.select import CandidatePool, find_candidates  # noqa: E402

GPU = "gfx942"
ROWS = 10_000
CHOICES = pytest.mark.parametrize("choice_count", [100, pytest.param(500, marks=pytest.mark.deep)])
# What is asked of a kernel's own fields, of numbers and of extents; some problems have it, most do not.
WHERE = {
    "gemm": {"dtype_a": ("fp16",), "k_batch": (1, 2), "batch": (1,)},
    "gemm_quant": {"dtype_a": ("fp8",), "quant": ("rowcol",), "m": (64, 1024)},
    "grouped_gemm": {"dtype_a": ("bf16",), "ragged": ("m", "k"), "groups": (4, 64)},
    "grouped_conv": {"direction": ("forward", "backward_data"), "g": (1, 2), "dilation": ((1, 1), (1, 2), (1, 1, 1))},
    "fmha": {"dtype": ("fp16",), "batch": (2, 4, 16, 32), "lse": (False,)},
    "moe_sorting": {"experts": (8, 64), "masked": (False,)},
    "topk": {"dtype": ("bf16",), "experts": (8, 64, 128), "activation": ("softmax",)},
    "norm": {"dtype": ("bf16",), "columns": (64, 1024, 4096), "residual": ("none",)},
}
RANKED_OPS = ("gemm", "grouped_conv", "fmha", "norm", "gemm_quant", "grouped_gemm", "topk", "moe_sorting")


@pytest.mark.compile
@pytest.mark.parametrize("name", RANKED_OPS)
def test_estimates_and_features_are_those_of_python(name: str, tmp_path: Path) -> None:
    op, arch = find_op(name), archs.load(GPU)
    rows = ROWS // 4 if in_tier_ci() else ROWS
    kernels = kernels_for(op, GPU)
    ranking = Ranking(tmp_path, arch, kernels, [random_bundle(op, GPU, kernels)])
    p, k, problem_names, kernel_names = rows_of(op, kernels, GPU, rows, seed=1)
    facts, column = columns(p, problem_names), columns(k, kernel_names)
    assert op.cost is not None
    estimate = op.cost.estimate(facts, column, arch)
    features = op.cost.features(facts, column, estimate, arch)
    held = np.ascontiguousarray(k[:, [kernel_names.index(each) for each in ranking.read]])
    us, seen = np.zeros(rows), np.zeros((rows, len(features)))
    where = (address(p), p.shape[1], address(held), held.shape[1], rows)
    ranking.library.estimates(*where, address(us))
    ranking.library.features_in_c(*where, address(seen))

    assert us == pytest.approx(estimate.us, rel=1e-12, abs=0)
    wanted = np.stack([np.broadcast_to(value, rows) for value in features.values()], axis=1)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(seen, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.compile
@pytest.mark.parametrize("name", RANKED_OPS)
def test_problem_numbers_come_from_the_arguments(name: str, tmp_path: Path) -> None:
    op = find_op(name)
    kernels = kernels_for(op, GPU)
    ranking = Ranking(tmp_path, archs.load(GPU), kernels)
    random = np.random.default_rng(2)
    assert op.cost is not None
    assert op.execution is not None
    for place in random.integers(len(kernels), size=500 if in_tier_ci() else 2_000):
        problem = random_problem(op, kernels[place].config, random)
        wanted = op.cost.problem_numbers(problem)
        found = np.zeros(len(wanted))
        args = op.execution.arguments(problem)
        ranking.library.numbers_in_c(address(np.frombuffer(args, np.uint8)), int(place), address(found))
        assert dict(zip(wanted, found, strict=True)) == pytest.approx(dict(wanted), rel=1e-15), problem


@pytest.mark.compile
def test_ten_thousand_rows_through_the_trees_have_the_bits_of_python(tmp_path: Path) -> None:
    op = find_op("grouped_conv")
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


def check_order(slugs: list[str], us: Any, wanted: Any) -> None:
    """Kernels whose times differ by rounding only may change places: C and NumPy round logarithms differently."""
    times = {choice.kernel.slug: choice.us for choice in wanted}
    assert sorted(slugs) == sorted(times)
    assert us == pytest.approx([choice.us for choice in wanted], rel=1e-12)
    moved = [(slug, choice) for slug, choice in zip(slugs, wanted, strict=True) if slug != choice.kernel.slug]
    assert all(times[slug] == pytest.approx(choice.us, rel=1e-14) for slug, choice in moved), moved


def bundles_of(op: Any, kernels: Any, kinds: str) -> list[Any]:
    if kinds == "none":
        return []
    if kinds == "two":
        last = random_bundle(op, GPU, kernels, seed=7, transform=RELEVANCE)
        # The first knows only the kernels of one pipeline: the others are left to the second.
        field = {"norm": "threads", "topk": "threads", "moe_sorting": "tile"}.get(op.name, "pipeline")
        some = {field: (getattr(kernels[0].config, field),)}
        assert 0 < sum(getattr(kernel.config, field) in some[field] for kernel in kernels) < len(kernels)
        return [replace(random_bundle(op, GPU, kernels, where=WHERE[op.name]), kernels=some), last]
    return [random_bundle(op, GPU, kernels, transform=kinds)]


def list_kinds() -> list[Any]:
    """Ops and their bundles. `two` has a bundle of each transform, so each alone is tried with one op in CI."""
    return [
        pytest.param(name, kinds, marks=() if name == "gemm" or kinds in ("none", "two") else pytest.mark.deep)
        for name in RANKED_OPS
        for kinds in ("none", LOG_RATIO, RELEVANCE, "two")
    ]


@pytest.mark.compile
@CHOICES
@pytest.mark.parametrize(("name", "kinds"), list_kinds())
def test_the_choice_is_that_of_python(name: str, kinds: str, choice_count: int, tmp_path: Path) -> None:
    op, arch = find_op(name), archs.load(GPU)
    kernels = kernels_for(op, GPU)
    bundles = bundles_of(op, kernels, kinds)
    ranking = Ranking(tmp_path, arch, kernels, bundles)
    pool = CandidatePool.create(arch, kernels)
    chain = Chain(bundles=tuple(bundles))
    random = np.random.default_rng(4)
    compared = 0
    while compared < choice_count:
        problem = random_problem(op, kernels[random.integers(len(kernels))].config, random)
        part = pool.get_candidates(problem)
        assert part is not None
        able = find_candidates(part, problem, pad=False)
        if len(able.places) < 2:
            continue
        compared += 1
        wanted = chain.rank(problem, arch, able).choices
        numbers, us = ranking.rank(problem, able.places)
        check_order([kernels[number].slug for number in numbers], us, wanted)


@pytest.mark.compile
@CHOICES
@pytest.mark.parametrize("name", [op.name for op in OPS if (op.template.parent / "bundles").is_dir()])
def test_shipped_bundles_choose_as_in_python(name: str, choice_count: int, tmp_path: Path) -> None:
    op = find_op(name)
    for number, bundle in enumerate(load_builtin_bundles(op)):
        folder = tmp_path / str(number)
        folder.mkdir()
        compare_shipped(op, bundle, choice_count, folder)


def compare_shipped(op: Op, bundle: Bundle, choice_count: int, folder: Path) -> None:
    """Rankings of problems most of which a bundle is for."""
    gpu = bundle.archs[0]
    arch = archs.load(gpu)
    own = {name: values for name, values in bundle.where.items() if name in op.field_names}
    kernels = [
        kernel
        for kernel in kernels_for(op, gpu, 5_000)
        if all(getattr(kernel.config, name) in values for name, values in own.items())
    ]
    ranking = Ranking(folder, arch, kernels, load_builtin_bundles(op))
    pool = CandidatePool.create(arch, kernels)
    random = np.random.default_rng(5)
    asked = {name: values[0] for name, values in bundle.where.items() if name not in own}
    differing = 0
    for _ in range(choice_count):
        config = kernels[random.integers(len(kernels))].config
        problem = replace(random_problem(op, config, random), **(asked if random.random() < 0.8 else {}))
        part = pool.get_candidates(problem)
        assert part is not None
        able = find_candidates(part, problem, pad=False)
        wanted = [choice.kernel for choice in Chain().rank(problem, arch, able).choices]
        assert [kernels[number] for number in ranking.rank(problem, able.places)[0]] == wanted, problem
        estimated = Chain(bundles=()).rank(problem, arch, able).choices
        differing += bool(wanted) and wanted[0] != estimated[0].kernel
    assert differing > choice_count // 20, "what was learned must count for something"


@pytest.mark.compile
def test_kernels_of_several_types_are_estimated_each_with_its_own(tmp_path: Path) -> None:
    op, arch = find_op("gemm"), archs.load(GPU)
    kernels = kernels_for(op, GPU)
    ranking = Ranking(tmp_path, arch, kernels)
    problem = op.problem_type(m=4096, n=128, k=4096, dtype="fp16", layout="rcr")
    numbers, us = ranking.rank(problem, range(len(kernels)))
    alone = [ranking.rank(problem, [number])[1][0] for number in numbers]

    assert len({kernel.config.dtype_a for kernel in kernels}) > 2
    assert us == alone == sorted(us)


@pytest.mark.compile
def test_arguments_and_kernels_that_cannot_be_are_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    op, arch = find_op("gemm"), archs.load(GPU)
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
    op, arch = find_op("gemm"), archs.load(GPU)
    kernels = kernels_for(op, GPU, 20)
    use = ResourceUse(vgprs=256, agprs=256, sgprs=100, lds_bytes=65536, scratch_bytes=0)

    assert render_rank_sources(arch, kernels) == render_rank_sources(arch, list(kernels))
    assert render_rank_sources(arch, kernels) != render_rank_sources(arch, kernels, uses={kernels[0]: use})


def test_ops_lie_one_after_the_other() -> None:
    arch = archs.load(GPU)
    kernels = [*kernels_for(find_op("gemm"), GPU, 3), *kernels_for(find_op("grouped_conv"), GPU, 2)]
    sources = render_rank_sources(arch, kernels, bundles=())

    assert "FIRST    = 0," in sources["gemm"]
    assert "FIRST    = 3," in sources["grouped_conv"]
    with pytest.raises(InvalidValueError, match="kernels of gemm are not consecutive"):
        render_rank_sources(arch, [*kernels, kernels[0]], bundles=())


@pytest.mark.usefixtures("plugin")
def test_an_op_without_numbers_for_c_is_left_out() -> None:
    op = find_op("scale")
    kernels = [op.make_kernel(op.make_example(), GPU), *kernels_for(find_op("gemm"), GPU, 2)]
    found = render_rank_sources(archs.load(GPU), kernels)

    assert list(found) == ["gemm"]
    assert "FIRST    = 1," in found["gemm"]


def test_a_bundle_that_asks_what_kernels_do_not_tell_is_refused() -> None:
    op = find_op("grouped_conv")
    kernels = kernels_for(op, GPU, 4)
    bundle = random_bundle(op, GPU, kernels, where={"reach": ((1, 1),)})

    with pytest.raises(BundleError, match="depends on the problem field reach, which neither the arguments nor"):
        render_rank_sources(archs.load(GPU), kernels, bundles=[bundle])
    assert "learned" not in render_rank_sources(archs.load("gfx950"), kernels, bundles=[bundle])["grouped_conv"]
    assert (
        "learned"
        not in render_rank_sources(archs.load(GPU), kernels, bundles=[replace(bundle, op="gemm")])["grouped_conv"]
    )
