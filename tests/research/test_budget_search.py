"""The search on a budget, replayed on the public times of CK Tile's convolutions."""

from __future__ import annotations

import pytest

from research import conv_data
from research.budget import Recording, make_recording, run_first, run_random, run_search
from research.sources import MissingDataError
from tilewright.bench.search import ROUNDS, read_budget


@pytest.fixture(scope="module")
def recording() -> Recording:
    try:
        data = conv_data.load().data
    except MissingDataError as error:
        pytest.skip(str(error))
    rows = zip(data.problem.tolist(), data.kernel.tolist(), data.estimate.tolist(), data.us.tolist(), strict=True)
    return make_recording("conv", rows)


@pytest.mark.parametrize(("share", "least"), [(0.05, 0.985), (0.1, 0.99), (0.25, 0.997)])
def test_a_share_of_the_measurements_gives_nearly_all_of_the_speed(
    recording: Recording, share: float, least: float
) -> None:
    """The figures of docs/measuring-selection.md, with some room. Random kernels are far behind."""
    budget = read_budget(share, recording.total)
    found, first = run_search(recording, budget, ROUNDS), run_first(recording, budget)
    assert found.mean >= least
    assert found.mean >= first.mean - 0.001
    assert run_random(recording, budget, seed=0).mean < found.mean - 0.1


def test_everything_finds_the_best(recording: Recording) -> None:
    assert run_random(recording, recording.total, seed=0).mean == 1.0
