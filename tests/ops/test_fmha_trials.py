"""Trial problems of attention: all of them fit, and what kernels look at differs among them."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

import tilewright as tw
from config_samples import draw_legal, list_strata
from tests.proof.mutating.kernels import make_kernels
from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.fmha.fit import query_tile_rows

FMHA = find_op("fmha")
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
SUBJECTS = {name: kernel for name, kernel in make_kernels().items() if kernel.op == "fmha"}


def trials(config: Any, arch: str) -> tuple[Any, ...]:
    assert FMHA.execution is not None
    return FMHA.execution.trials(config, archs.load(arch))


@pytest.mark.parametrize("gpu", GPUS)
def test_all_kinds_of_kernels_have_trials_that_fit(gpu: str) -> None:
    rng, arch = random.Random(5), archs.load(gpu)
    assert FMHA.execution is not None
    kinds = list_strata(FMHA, arch)
    for fixed in rng.sample(kinds, min(len(kinds), 60)):
        config = draw_legal(FMHA, arch, rng, fixed)
        if config is None:
            continue
        problems = trials(config, gpu)
        assert len(problems) >= 6 and len(set(problems)) == len(problems), config
        assert all(tw.fits(config, problem, gpu) == [] for problem in problems)
        assert len({(problem.heads, problem.kv_heads) for problem in problems}) >= 2, config
        assert {problem.layout for problem in problems} == {"bshd", "bhsd"}, config


@pytest.mark.parametrize("name", SUBJECTS)
def test_ends_of_queries_are_spread_over_a_tile(name: str) -> None:
    """An index of a row that is one off shows only where a sequence ends at that row."""
    kernel = SUBJECTS[name]
    rows = query_tile_rows(kernel.config)
    ends = sorted({problem.seqlen_q % rows for problem in trials(kernel.config, kernel.arch)})
    gaps = [after - before for before, after in zip(ends, [*ends[1:], ends[0] + rows], strict=True)]
    assert max(gaps) <= max(rows // 5, 1), ends


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_trial_has_many_tiles_of_queries(name: str) -> None:
    kernel = SUBJECTS[name]
    assert max(p.seqlen_q for p in trials(kernel.config, kernel.arch)) > 6 * query_tile_rows(kernel.config)


@pytest.mark.parametrize("name", SUBJECTS)
def test_sequences_and_heads_occur_together(name: str) -> None:
    """An index that leaves one of them out is right where there is only one of it."""
    kernel = SUBJECTS[name]
    several = [p for p in trials(kernel.config, kernel.arch) if p.batch > 1 and p.kv_heads > 1]
    assert several
    assert kernel.config.mask_form == "none" or any(p.heads > p.kv_heads for p in several)


@pytest.mark.parametrize("name", [name for name, kernel in SUBJECTS.items() if kernel.config.mask_form != "none"])
def test_every_window_meets_several_tiles_of_keys(name: str) -> None:
    kernel = SUBJECTS[name]
    longest: dict[Any, int] = {}
    for problem in trials(kernel.config, kernel.arch):
        window = problem.mask, problem.window_left, problem.window_right
        longest[window] = max(longest.get(window, 0), problem.seqlen_k)
    assert len(longest) >= 7
    assert min(longest.values()) > kernel.config.tile["n0"], longest


def test_kernels_without_pads_are_tried_with_whole_tiles() -> None:
    kernel = SUBJECTS["fmha/forward"]
    config = dataclasses.replace(kernel.config, mode="batch", pad_q=False, pad_k=False)
    found = trials(config, kernel.arch)
    assert len(found) >= 8 and len({(p.mask, p.window_left, p.window_right) for p in found}) >= 6


def test_every_form_of_a_mask_has_as_many_trials() -> None:
    kernel = SUBJECTS["fmha/forward"]
    forms = {form: dataclasses.replace(kernel.config, mask_form=form) for form in ("any", "causal", "window")}
    assert len({len(trials(config, kernel.arch)) for config in forms.values()}) == 1


@pytest.mark.parametrize("name", SUBJECTS)
def test_transposed_values_need_a_kernel_for_them(name: str) -> None:
    """A kernel without the field v_layout takes the stride of an element for that of a row."""
    kernel = SUBJECTS[name]
    transposed = dataclasses.replace(trials(kernel.config, kernel.arch)[0], v_layout="col")
    assert "S602" in [violation.code for violation in tw.fits(kernel.config, transposed, kernel.arch)]
