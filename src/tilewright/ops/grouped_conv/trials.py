"""Problems that test the edge cases of a kernel, small enough for an emulated device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.loops import COLUMN, FEW_TILES, MANY_TILES, ROW, list_loop_forms
from tilewright.ops.grouped_conv.config import Config
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm, channel_units
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.padding import can_compute
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.trial_filters import (
    DILATED,
    FORMS,
    ODD_ONES,
    ONE_SIDED,
    PLAIN,
    POINT,
    POINT_STRIDED,
    SAME,
    STRIDED,
    FilterShape,
    Forms,
    make_tall_filter,
)
from tilewright.ops.problem_values import Extents

STEPS = 2  # steps along K of a trial that does not test steps
SMALL = (FEW_TILES, (1, 3), (3, 1))
ONE_LINE = (ROW, COLUMN)
MANY_FORMS = 6  # loop forms
EDGES = len(FORMS) + len(ODD_ONES)  # the number of edge trials: every filter once
MANY_TAPS = 9  # with more taps, a few vectors of channels are several blocks


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Trials that the kernel supports, the most sensitive first: many tiles in every form of the loop, then edges."""
    found: dict[Problem, None] = {}
    for values in _list_trial_fields(config, arch):
        problem = Problem(
            **values,
            direction=find_kind(config).name,
            dtype_a=config.dtype_a,
            dtype_b=config.dtype_b,
            dtype_c=config.dtype_c,
        )
        if can_compute(config, problem, arch):
            found[problem] = None
    return tuple(found)


def _list_trial_fields(config: Config, arch: Arch) -> Iterator[dict[str, Any]]:
    filters = _list_filters(config)
    yield from _list_loop_trials(config, arch, filters)
    yield from _list_edges(config, arch, filters)
    yield from _list_splits(config, filters[0])
    if config.split_image:  # an image has two pieces
        yield _ConvTrial(config, filters[0], n=2, positions=2 * _whole_positions(config), lines=2).to_fields()


def _list_loop_trials(config: Config, arch: Arch, filters: tuple[Forms, ...]) -> Iterator[dict[str, Any]]:
    """Every form of the loop with many tiles and few steps, and with few tiles and many steps.

    Filter, stride, dilation and pads together, and another filter for the few tiles if there is one.
    """
    kind, any_filter = find_kind(config), filters is FORMS
    long = kind.long_filters if any_filter else (*filters[1:2], *filters[:1], *filters[2:])
    usual = (*kind.loop_filters, POINT) if any_filter else filters
    walked = any_filter and not kind.sums_positions  # steps are along taps and channels
    all_steps = list_loop_forms(ImplicitGemm(config), arch)
    for k_batch in (1, *((2,) if config.split_k else ())):
        for number, steps in enumerate(all_steps):
            made: list[_ConvTrial] = []
            fewest = sorted(steps)
            # Parts of a split sum are added atomically, by separate kernels.
            if number == 0 or _is_compiled_by_form(config):
                first = (_make_tall_filter(config, fewest[0]),) if walked else ()
                made += _find_loop_trial(config, (*first, *usual), fewest, MANY_TILES, k_batch)
            if not _is_covered_by_edges(config, steps, len(all_steps)):
                for tiles in _choose_small_tiles(config, number, k_batch * len(all_steps)):
                    made += _find_loop_trial(config, long, fewest[::-1], tiles, k_batch, groups=2)
            if walked and len(steps) > 1:
                # Every step of several passes advances to other rows. With the filters above, most steps do not.
                middle = fewest[len(fewest) // 2]
                made += _find_loop_trial(
                    config, (_make_tall_filter(config, middle),), (middle,), ONE_LINE[(number + 1) % 2], groups=2
                )
            yield from (trial.to_fields() | {"k_batch": k_batch} for trial in made)
    if any_filter and kind.several_gemms:
        yield from _list_uneven_trials(config, config.block.k * max(all_steps[0]))


def _make_tall_filter(config: Config, steps: int) -> Forms:
    kind = find_kind(config)
    unit = dict(zip("ck", channel_units(config), strict=True))[kind.summed_channels]
    return make_tall_filter(config, steps, unit, strided=not kind.several_gemms)


def _list_uneven_trials(config: Config, longest: int) -> Iterator[dict[str, Any]]:
    """GEMMs of one launch with different numbers of steps, more than a pipeline prefetches."""
    kind = find_kind(config)
    unit_c, unit_k = channel_units(config)
    for forms in kind.uneven_filters:
        trial = _ConvTrial(config, forms)
        yield replace(trial, k=max(longest // (trial.taps * unit_k), 1)).to_fields()
    for forms in kind.one_stride_filters:
        # Steps that start within a tap.
        columns, odd = max(_count_columns(config, 2) // unit_c, 1), max(config.block.k // (2 * unit_k), 1) + 1
        yield _ConvTrial(config, forms, n=3, c=columns, k=odd, positions=config.block.m // 2).to_fields()


def _is_compiled_by_form(config: Config) -> bool:
    """Whether each form of the loop is a separate kernel, with its own code for tiles, taps and positions.

    The work-groups of an input gradient choose their loop on the device (AnyLoop in implicit_gemm.hpp).
    """
    return not find_kind(config).several_gemms


def _is_covered_by_edges(config: Config, steps: Sequence[int], forms: int) -> bool:
    """Whether the edge trials cover a form, so that it needs no trial with few tiles and many steps.

    They do for forms without a loop if there are many forms, except for a single step: many filters with one vector of
    channels have more steps.
    """
    return find_kind(config).edges_cover_loops and forms >= MANY_FORMS and len(steps) == 1 and steps[0] > 1


def _choose_small_tiles(config: Config, number: int, forms: int) -> tuple[tuple[int, int], ...]:
    """Tiles along M and N of the trials with many steps: one shape for each form if there are many forms."""
    shared = forms >= MANY_FORMS or not _is_compiled_by_form(config)
    return (ONE_LINE[number % len(ONE_LINE)],) if shared else SMALL


def _find_loop_trial(
    config: Config,
    filters: Sequence[Forms],
    steps: Sequence[int],
    tiles: tuple[int, int],
    k_batch: int = 1,
    groups: int = 1,
) -> Iterator[_ConvTrial]:
    """A trial with one of these numbers of steps and this many tiles; none if no number of channels gives it."""
    kind, (unit_c, unit_k) = find_kind(config), channel_units(config)
    rows = tiles[0] * config.block.m - config.block.m // 4
    # Prefer channels that are not a multiple of a step: a step then starts within a tap and ends in another.
    for crossing, count, forms in itertools.product((True, False), steps, filters):
        trial = _ConvTrial(config, forms, groups=groups)
        length = config.block.k * count
        if kind.sums_positions:
            rows_k = max(rows // config.merge_groups // unit_k, 1)
            columns_c = max(_count_columns(config, tiles[1]) // trial.taps // unit_c, 1)
            positions = (length * k_batch - config.block.k // 4) // trial.images
            yield replace(trial, k=rows_k, c=columns_c, positions=positions)
            return
        sums_c = kind.summed_channels == "c"
        summed, across = (unit_c, unit_k) if sums_c else (unit_k, unit_c)
        # Kernels for filters of 3x3 are for groups of one input channel.
        vectors = 1 if config.specialization == "filter3x3" else length // (trial.taps * summed)
        if vectors * trial.taps * summed <= length - config.block.k:
            continue
        if crossing and vectors * summed % config.block.k == 0:
            continue
        columns = max(_count_columns(config, tiles[1]) // across, 1)
        c, k = (vectors, columns) if sums_c else (columns, vectors)
        yield replace(trial, c=c, k=k, positions=rows // trial.images)
        return


def _count_columns(config: Config, tiles: int) -> int:
    """Columns of one group's GEMM that fill this many tiles, the last one partially."""
    return (tiles * config.block.n - config.block.n // 4) // config.merge_groups


def _list_filters(config: Config) -> tuple[Forms, ...]:
    """The filters that a kernel is intended for, the most common first."""
    if config.explicit_gemm or config.specialization == "filter1x1_stride1_pad0":
        return (POINT,)
    if config.specialization == "filter1x1_pad0":
        return (POINT, POINT_STRIDED)
    if config.specialization == "filter3x3":
        return (SAME, STRIDED, DILATED, ONE_SIDED, PLAIN)
    return FORMS


def _list_edges(config: Config, arch: Arch, usual: tuple[Forms, ...]) -> Iterator[dict[str, Any]]:
    """Every filter, and edges of images, channels and groups, in varying combinations.

    Numbers of steps are those that need no loop, all of them in turn.
    """
    filters = (*usual, *ODD_ONES) if usual is FORMS else usual
    whole = _whole_positions(config)
    exact, loose = [whole, whole + 1, whole - 1, 1], ((2, None), (3, whole // 3), (5, 1))
    short = [steps[0] for steps in list_loop_forms(ImplicitGemm(config), arch) if len(steps) == 1] or [STEPS]
    for number in range(max(EDGES, len(short))):
        forms = filters[number % len(filters)]
        trial = _ConvTrial(config, forms, groups=2 + number % 2)
        channels = _choose_channels(config, trial, number, short[number % len(short)])
        if exact and all(form.keeps_size for form in trial.by_dimension):
            trial = replace(trial, n=1, positions=exact.pop(0), lines=1)
        elif not config.split_image:
            n, positions = loose[number % len(loose)]
            trial = replace(trial, n=n, positions=positions)
        yield replace(trial, c=channels[0], k=channels[1]).to_fields()
    for c, k in ((1, 1), *_odd_vectors(_ConvTrial(config, usual[0]))):
        yield _ConvTrial(config, usual[0], c=c, k=k).to_fields()
    yield _ConvTrial(config, usual[0]).to_fields()


def _whole_positions(config: Config) -> int:
    """A number of output positions that is a multiple of the block."""
    return config.block.k * STEPS if find_kind(config).sums_positions else config.block.m


def _odd_vectors(trial: _ConvTrial) -> tuple[tuple[int, int], ...]:
    """Channels of the input and the output that are odd multiples of vectors."""
    return ((3, 5), (5, 3)) if trial.taps <= MANY_TAPS else ((1, 3), (3, 1))


def _choose_channels(config: Config, trial: _ConvTrial, number: int, steps: int) -> tuple[int | None, int | None]:
    """Channels in vectors: around a block if they are columns or rows, else the number that gives these steps."""
    kind, (unit_c, unit_k) = find_kind(config), channel_units(config)
    c, k = (count // unit for count, unit in zip(trial.channels, (unit_c, unit_k), strict=True))
    if kind.sums_positions:
        pairs = ((c, k), (1, 1), *_odd_vectors(trial), (c, k + 1), (c + 1, k), (max(c - 1, 1), max(k - 1, 1)))
        return pairs[number % len(pairs)]
    sums_c = kind.summed_channels == "c"
    full = k if sums_c else c
    across = (full + 1, 1, full, 3, max(full - 1, 1), 5)[number % 6]
    summed: int | None = max(config.block.k * steps // (trial.taps * (unit_c if sums_c else unit_k)), 1)
    if config.specialization == "filter3x3":
        summed = None
    return (summed, across) if sums_c else (across, summed)


def _list_splits(config: Config, forms: Forms) -> Iterator[dict[str, Any]]:
    """Splits into parts of equal length, and with a shorter last part."""
    if not config.split_k:
        return
    for k_batch in (2, 3):
        whole = config.block.k * 2 * k_batch
        yield {**_ConvTrial(config, forms, n=2, positions=whole // 2, groups=2).to_fields(), "k_batch": k_batch}
        for positions in (whole // 2, whole, whole * 3 // 2, whole - 1, whole - config.mma.k):
            yield {**_ConvTrial(config, forms, n=1, positions=positions, lines=1).to_fields(), "k_batch": k_batch}


@dataclass(frozen=True, slots=True)
class _ConvTrial:
    """One trial of a kernel. Channels are given in vectors; by default they fill a block, or STEPS of them."""

    config: Config
    forms: Forms
    n: int | None = None
    groups: int = 1  # in multiples of the groups that one work-group computes
    c: int | None = None
    k: int | None = None
    positions: int | None = None  # outputs of one image
    lines: int | None = None  # exactly `positions` in this many lines; by default about as many

    @property
    def images(self) -> int:
        # With several images, pieces must be complete blocks, and few sizes are.
        return self.n or (1 if self.config.split_image else 2)

    @property
    def by_dimension(self) -> tuple[FilterShape, ...]:
        return self.forms[-self.config.ndim :]

    @property
    def taps(self) -> int:
        return math.prod(form.filter for form in self.by_dimension)

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels of one group."""
        c, k = self._fill_dimension("c"), self._fill_dimension("k")
        if self.config.specialization == "filter3x3":
            c = 1  # this specialization is for groups of one input channel
        unit_c, unit_k = channel_units(self.config)
        c = max(c // unit_c, 1) if self.c is None else self.c
        k = max(k // unit_k, 1) if self.k is None else self.k
        return c * unit_c, k * unit_k

    def _fill_dimension(self, channels: str) -> int:
        """The channels with which their dimension of the GEMM fills a block, or STEPS of them."""
        block, merged, factors = self.config.block, self.config.merge_groups, find_kind(self.config).factors
        name = factors.find_dimension(channels)
        extent = {"m": block.m // merged, "n": block.n // merged, "k": block.k * STEPS}[name]
        return extent // self.taps if name == factors.find_dimension("taps") else extent

    def to_fields(self) -> dict[str, Any]:
        """The values of a problem."""
        g = self.groups * self.config.merge_groups
        c, k = self.channels
        forms = self.by_dimension
        return {
            "n": self.images,
            "g": g,
            "c": c * g,
            "k": k * g,
            "input_size": tuple(
                form.compute_input_size(size) for form, size in zip(forms, self._choose_outputs(), strict=True)
            ),
            "filter_size": tuple(form.filter for form in forms),
            "stride": tuple(form.stride for form in forms),
            "dilation": tuple(form.dilation for form in forms),
            "left_pad": tuple(form.left for form in forms),
            "right_pad": tuple(form.right for form in forms),
        }

    def _choose_outputs(self) -> Extents:
        """Output sizes, different in every dimension, so that mixed-up dimensions show."""
        ndim = self.config.ndim
        wanted = self.positions or self._usual_positions()
        if ndim == 1:
            return (max(wanted, self.by_dimension[0].least_outputs),)
        if self.lines is not None:
            return (self.lines, *(1,) * (ndim - 2), wanted // self.lines)
        outer = max(round(wanted ** (1 / ndim)) - 1, 2)
        rows = (outer,) if ndim == 2 else (outer - 1, outer)
        sizes = (*rows, max(wanted // math.prod(rows), outer + 1))
        return tuple(max(size, form.least_outputs) for size, form in zip(sizes, self.by_dimension, strict=True))

    def _usual_positions(self) -> int:
        """A little more than a block in all images together, so that edges of images and of blocks differ."""
        kind = find_kind(self.config)
        if kind.sums_positions:
            return self.config.block.k * STEPS * 5 // (4 * self.images)
        total = self.config.block.m * 5 // 4
        if kind.several_gemms:
            # The input has that many times more positions, in a separate GEMM for each remainder.
            total //= max(form.stride for form in self.by_dimension)
        return max(total // self.images, 1)
