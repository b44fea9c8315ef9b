"""The chain: measured winners, support, estimates, first fit among equals; each step says what it did."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright.base.errors import InvalidValueError
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import ResourceUse
from tilewright.ops.kernel import Kernel
from tilewright.select.bundle import load_builtin_bundles, read_bundle
from tilewright.select.chain import CHAIN, RERANKED, Chain
from tilewright.select.select import CandidatePool, select_from, select_kernels
from tilewright.select.selection import FIRST_FIT
from tilewright.select.tuned import TunedEntry, TunedTable

GFX942 = tw.load("gfx942")
KERNELS = list(find_op("gemm").sets()["fp16_rcr_all"].kernels("gfx942"))
BARE = Chain(bundles=())


def problem(m: int, n: int, k: int, **fields: Any) -> Any:
    return tw.gemm.Problem(**{"m": m, "n": n, "k": k, "dtype": "fp16", "layout": "rcr", **fields})


LARGE, SMALL = problem(4096, 4096, 4096), problem(16, 4096, 4096)


def order(asked: Any, **options: Any) -> list[Kernel]:
    return [choice.kernel for choice in select_kernels(asked, GFX942, KERNELS, **{"selector": BARE, **options})]


def block(kernel: Kernel) -> Any:
    config: Any = kernel.config
    return config.block


def test_large_problems_get_large_tiles_and_small_ones_small() -> None:
    assert block(order(LARGE)[0]).m >= 128
    assert block(order(SMALL)[0]).m <= 32


def test_every_choice_has_a_time_and_its_terms_best_first() -> None:
    found = select_kernels(LARGE, GFX942, KERNELS, selector=BARE)
    times = [choice.us for choice in found]
    assert len(times) == len(KERNELS) and None not in times
    assert times == sorted(times, key=lambda us: us or 0.0)
    assert [choice.score for choice in found] == sorted((choice.score for choice in found), reverse=True)
    best = found.best
    assert best.terms["matrix"] > 0 and best.why.startswith(f"estimated {best.us:.4g} µs, ")
    assert [step.name for step in found.steps] == ["tuned table", "support", "estimate", "learned"]
    assert found.steps[3].what == "no bundle for such gemm problems on gfx942"


def test_equal_times_keep_the_order_of_registration() -> None:
    twins = [kernel for kernel in KERNELS if block(kernel) == block(KERNELS[0])]
    one = select_kernels(LARGE, GFX942, twins, selector=BARE)
    other = select_kernels(LARGE, GFX942, twins[::-1], selector=BARE)
    ties = [k for k in twins if {c.us for c in one if c.kernel == k} == {one.best.us}]
    assert len(ties) > 1, "there is a tie to look at"
    assert one.best.kernel == ties[0] and other.best.kernel == ties[-1]


def test_a_measured_winner_comes_first_for_its_very_problem() -> None:
    slowest = order(LARGE)[-1]
    chain = replace(BARE, tuned=TunedTable([TunedEntry(slowest, LARGE, 41.5)], "mine.json"))
    found = select_kernels(LARGE, GFX942, KERNELS, selector=chain)
    assert found.best.kernel == slowest and found.best.us == 41.5
    assert found.best.why == "measured 41.5 µs for exactly this problem"
    assert found.steps[0].what == f"{slowest.slug} took 41.5 µs"
    assert [c.kernel for c in found.choices[1:]] == order(LARGE)[:-1], "the others keep their order"
    other = select_kernels(SMALL, GFX942, KERNELS, selector=chain)
    assert other.steps[0].what == "mine.json has no entry for this problem"
    assert [c.kernel for c in other] == order(SMALL)
    without = select_kernels(LARGE, GFX942, [k for k in KERNELS if k != slowest], selector=chain)
    assert without.steps[0].what.endswith("which is not one of the candidates")


def test_priority_counts_more_than_time_or_table() -> None:
    slowest, next_to_last = order(LARGE)[-1], order(LARGE)[-2]
    chain = replace(BARE, tuned=TunedTable([TunedEntry(next_to_last, LARGE, 1.0)]))
    found = select_kernels(LARGE, GFX942, KERNELS, {slowest: 1}, selector=chain)
    assert [c.kernel for c in found.choices[:2]] == [slowest, next_to_last]
    assert found.best.why.startswith("priority 1, estimated ")


def test_padded_problems_come_last_with_their_own_time() -> None:
    odd = problem(4096, 4096, 4100)
    found = select_kernels(odd, GFX942, KERNELS, selector=BARE, pad=True)
    padded = [choice.padded is not None for choice in found]
    assert True in padded and padded == sorted(padded)
    times = [choice.us or 0.0 for choice in found if choice.padded is not None]
    assert times == sorted(times)
    last = found.choices[-1]
    assert "; supports only " in last.why and last.why.startswith("estimated ")


def test_the_same_order_one_by_one_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    with_arrays = [order(asked) for asked in (LARGE, SMALL)]
    monkeypatch.setattr("tilewright.select.chain.has_numpy", lambda: False)
    assert [order(asked) for asked in (LARGE, SMALL)] == with_arrays
    assert (
        select_kernels(LARGE, GFX942, KERNELS, selector=CHAIN)
        .steps[-1]
        .what.startswith("skipped: NumPy is not installed")
    )


def test_a_registry_is_created_without_numpy() -> None:
    program = "import sys; sys.modules['numpy'] = None; import tilewright as tw; tw.Registry(())"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_the_compiler_made_of_a_kernel_counts() -> None:
    quickest = order(LARGE)[0]
    spilled = ResourceUse(vgprs=256, agprs=256, sgprs=100, lds_bytes=65536, scratch_bytes=4096)
    plain = select_from(CandidatePool.create(GFX942, KERNELS), LARGE, BARE)
    known = select_from(CandidatePool.create(GFX942, KERNELS, uses={quickest: spilled}), LARGE, BARE)
    times = [{c.kernel: c.us for c in found}[quickest] for found in (plain, known)]
    assert times[1] is not None and times[0] is not None and times[1] > times[0]


def test_candidates_of_somebody_else_are_ranked_too() -> None:
    mine = tuple(select_kernels(LARGE, GFX942, KERNELS[::-1], selector=FIRST_FIT).choices)
    ranked = BARE.rank(LARGE, GFX942, mine).choices
    assert {choice.kernel for choice in ranked} == set(KERNELS)
    assert ranked[0].us == select_kernels(LARGE, GFX942, KERNELS, selector=BARE).best.us


def test_threads_that_ask_at_once_get_the_same_answers() -> None:
    registry = tw.Registry.of(KERNELS)
    problems = [problem(m, 4096, 4096) for m in range(64, 64 * 9, 64)]
    wanted = [registry.select(asked, "gfx942", built=False).best for asked in problems]
    fresh, found, start = tw.Registry.of(KERNELS), {}, threading.Barrier(8)

    def ask(number: int) -> None:
        start.wait()
        found[number] = [fresh.select(asked, "gfx942", built=False).best for asked in problems]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(8)] == [wanted] * 8


def test_tables_and_bundles_are_for_the_chain() -> None:
    registry = tw.Registry.of(KERNELS)
    table = TunedTable([TunedEntry(order(LARGE)[-1], LARGE, 41.5)])
    assert registry.with_tuned(table).select(LARGE, "gfx942", built=False).best.us == 41.5
    assert registry.with_bundles().select(LARGE, "gfx942", built=False).best.kernel == order(LARGE)[0]
    plain = replace(registry, selector=FIRST_FIT)
    with pytest.raises(InvalidValueError, match="with the selector Chain only, and this registry has FirstFit"):
        plain.with_tuned(table)
    with pytest.raises(InvalidValueError, match="with the selector Chain only"):
        plain.with_bundles()


@pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)
def test_a_shipped_bundle_is_used_with_newer_headers() -> None:
    """Kernels use more LDS there, which changes the values of features, but not their meaning."""
    folder = find_op("grouped_conv").template.parent / "bundles" / "forward_bf16_gfx950"
    with use_tree(TREES / NEWER):
        assert read_bundle(folder).name == "forward_bf16_gfx950"


def test_a_bundle_corrects_the_kernels_it_knows_and_the_others_keep_their_estimate() -> None:
    problem = tw.grouped_conv.Problem(
        direction="forward", n=32, c=64, k=64, input_size=(56, 56), filter_size=(3, 3), pad=1, dtype="bf16"
    )
    sets = [found for found in find_op("grouped_conv").sets().values() if "gfx950" in found.archs]
    kernels = list(dict.fromkeys(kernel for found in sets for kernel in found.kernels("gfx950")))
    gfx950 = tw.load("gfx950")
    (bundle,) = load_builtin_bundles(find_op("grouped_conv"))
    plain = {c.kernel: c.us for c in select_kernels(problem, gfx950, kernels, selector=BARE)}
    found = select_kernels(problem, gfx950, kernels, selector=CHAIN)
    first = set(list(plain)[:RERANKED])
    known = {kernel for kernel in first if bundle.covers(kernel.config)}
    assert known and known != first, "the first ones are of both makes"
    changed = {c.kernel for c in found if c.us != plain[c.kernel]}
    assert changed == known
    assert found.steps[-1].what == f"{bundle.name}: corrects the estimates of {len(known)} of the first {RERANKED}"
    assert {c.kernel for c in found.choices[:RERANKED]} == first
    times = [c.us or 0.0 for c in found.choices[:RERANKED]]
    assert times == sorted(times)
    assert all(c.why.startswith(f"{bundle.name} predicts") == (c.kernel in known) for c in found)
