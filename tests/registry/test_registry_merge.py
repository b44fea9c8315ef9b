"""Two registries as one: what is kept, and what somebody must decide."""

from __future__ import annotations

from pathlib import Path

import pytest
from registry_parts import KERNELS, artifact, failure

import tilewright as tw
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.building.store.local import Store

A, B, C = KERNELS[:3]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_kernels_of_both_in_order(store: Store) -> None:
    mine = tw.Registry((B, A), {A: artifact(store, A)}, priorities={B: 1})
    theirs = tw.Registry((C, A), {C: artifact(store, C)}, priorities={C: 2})
    merged = mine.merge(theirs)

    assert merged.kernels == (B, A, C)
    assert merged.results == {A: mine.results[A], C: theirs.results[C]}
    assert merged.priorities == {B: 1, C: 2}
    assert merged.merge(mine) == merged and mine.merge(mine) == mine


def test_the_built_one_is_kept_from_either_side(store: Store) -> None:
    built, failed, plain = (
        tw.Registry((A,), {A: artifact(store, A)}),
        tw.Registry((A,), {A: failure(A)}),
        tw.Registry((A,)),
    )
    for one, other, kept in ((built, failed, built), (built, plain, built), (failed, plain, failed)):
        assert one.merge(other).results == kept.results
        assert other.merge(one).results == kept.results


def test_two_builds_of_a_kernel_must_be_decided(store: Store) -> None:
    mine = tw.Registry((A, B), {A: artifact(store, A, "old"), B: artifact(store, B, "old")})
    theirs = tw.Registry((A, B), {A: artifact(store, A, "new"), B: artifact(store, B, "new")})

    with pytest.raises(InvalidValueError, match=r"conflicting builds of gemm-gfx942-.*\(and 1 more\).*prefer="):
        mine.merge(theirs)
    assert mine.merge(theirs, prefer="mine").results == mine.results
    assert mine.merge(theirs, prefer="theirs").results == theirs.results
    with pytest.raises(UnknownValueError, match="side of a merge 'newer'"):
        mine.merge(theirs, prefer="newer")


def test_two_priorities_must_be_decided() -> None:
    mine, theirs = (tw.Registry((A,)).with_priority(A, number) for number in (1, 2))
    with pytest.raises(InvalidValueError, match=r"conflicting priorities of .*: 1 and 2"):
        mine.merge(theirs)
    assert mine.merge(theirs, prefer="mine").priorities == {A: 1}
    assert mine.merge(theirs, prefer="theirs").priorities == {A: 2}
