"""The study of clocks from the code objects of hand-written kernels: the work of a launch, and the measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research import sources
from research.expert_profiles import find_code_object
from research.timeline_experts import count_work, expect_experts, expect_tiles, load_timings


def test_tiles_of_tokens_that_choose_at_random() -> None:
    assert expect_tiles(1, 4, 32, 16) == pytest.approx(4)  # one token: a tile for each expert that it chooses
    assert expect_tiles(40, 1, 1, 16) == pytest.approx(3)  # one expert with all tokens
    generator = np.random.default_rng(0)
    counts = generator.binomial(100, 2 / 8, (20_000, 8))
    assert expect_tiles(100, 2, 8, 16) == pytest.approx(np.ceil(counts / 16).sum(1).mean(), rel=0.005)
    used = expect_experts(np.array([3.0]), np.array([2.0]), np.array([8.0]))
    assert used == pytest.approx((generator.binomial(3, 2 / 8, (20_000, 8)) > 0).sum(1).mean(), rel=0.01)


def test_code_object_of_a_symbol() -> None:
    """The symbol has a suffix behind the name, whose length it gives."""
    path = find_code_object(Path("hsa"), "gfx950", "_ZN5aiter11stage_16x64E")
    assert path == Path("hsa/gfx950/fmoe_2stages/stage_16x64.co")


@pytest.mark.skipif(not sources.DATA.is_dir(), reason=f"the public measurements are not here: {sources.DATA}")
def test_work_of_the_measured_launches() -> None:
    """No kernel was faster than the memory, and the padding of an expert is less than a tile."""
    data = load_timings()
    work = count_work(data)
    rows = data.numbers["token"] * data.numbers["topk"]
    columns = np.ceil(data.numbers["inter_dim"] / data.kernel["block_n"])
    tiles = work.busy / columns
    assert len(data.us) == 2002
    assert (tiles * data.kernel["block_m"] >= rows * (1 - 1e-9)).all()
    assert (tiles <= rows / data.kernel["block_m"] + data.numbers["expert"]).all()
    assert (work.idle >= 0).all()
    assert (work.bytes / data.us < 8e6).all()  # bytes per µs of gfx950
