"""Compare the timeline of code objects with measured times of aiter's hand-written kernels for fused experts.

    python -m research.timeline_experts FOLDER    # 114 code objects, 2,002 timings: about 10 CPU minutes

FOLDER has the code objects by GPU: aiter_meta/hsa of the unpacked wheel amd-aiter 0.1.7.post2.dev18. Each kernel runs
on the emulated device with two lengths of the k loop, and its timeline is scaled to the measured problems, as in
`timeline`. The kernels read all weights of the experts once, so the memory's bandwidth gives a least time, too.

The bytes per clock of the vector cache, the launch, the factor of the clocks and the usable share of the bandwidth are
fitted for each GPU on its own. A simpler model, which only counts instructions, is fitted in the same way.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from research.expert_profiles import DEPTHS, find_code_object, profile_kernel
from research.foreign import load_gpu
from research.moe import make_grouped
from research.moe_data import FAMILIES, Candidates, Floats, load
from research.timeline import Modelled, fit, interpolate, judge_pairs, print_table, simulate_unit
from tilewright.arch import Arch
from tilewright.arch import load as load_arch
from tilewright.emulator.profile import KernelProfile
from tilewright.emulator.timing.machine import load_machine

# The clocks that are chosen, and their values. The latency stays at 700: on MI308X, 700 fits better than 1,400.
CHOICES: Mapping[str, tuple[int, ...]] = {"memory_bytes": (64, 32)}
# The same for the simpler model that only counts instructions: clocks that a work-group alone stalls for each that it
# issues, and how sharply the stalls vanish when work-groups share a unit.
STALLS: Mapping[str, tuple[float, ...]] = {
    "stall": (1.0, 2.0, 4.0, 8.0, 16.0),
    "sharpness": (1.0, 2.0, 4.0),
}
SHARES = (1.0, 0.85, 0.7, 0.55, 0.4)  # of the memory's bandwidth
UNITS = (256, 80)  # compute units of gfx950 and MI308X
WAVES = 4  # of a work-group


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch does for each pair of a problem and a kernel."""

    busy: Floats  # work-groups with rows
    idle: Floats  # work-groups that find nothing to do
    depth: Floats
    bytes: Floats  # that the memory must move at least


@dataclass(frozen=True, slots=True)
class Fitted:
    """Times of the pairs of one GPU."""

    us: Floats
    left_out: Floats  # each tile with the numbers that fit the others
    text: str


def expect_experts(tokens: Floats, chosen: Floats, experts: Floats) -> Floats:
    """Return the expected number of experts with rows. aiter's tuner lets each token choose at random."""
    return experts * (1 - (1 - chosen / experts) ** tokens)


def expect_tiles(tokens: int, chosen: int, experts: int, rows: int) -> float:
    """Return the expected tiles of `rows` rows: each expert has its own, the last one with padding."""
    full = np.arange(0, tokens, rows)  # an expert has another tile for each of these counts that it exceeds
    return float(experts * binom.sf(full, tokens, chosen / experts).sum())


def count_work(data: Candidates) -> Work:
    """Return the work of all pairs."""
    tokens, chosen, experts, depth, inner = (
        data.numbers[name] for name in ("token", "topk", "expert", "model_dim", "inter_dim")
    )
    rows, columns = data.kernel["block_m"], np.ceil(inner / data.kernel["block_n"])
    sizes = np.column_stack([tokens, chosen, experts, rows]).astype(int)
    distinct, place = np.unique(sizes, axis=0, return_inverse=True)
    busy = np.array([expect_tiles(*(int(size) for size in each)) for each in distinct])[place.ravel()]
    launched = np.ceil((tokens * chosen + experts * rows - chosen) / rows)  # moe_sorting of aiter's fused_moe.py
    out = np.where(data.words["q_type"] == "QuantType.per_1x128", 1, 2)  # bytes of a result
    weights = expect_experts(tokens, chosen, experts) * 2 * inner * depth  # gate and up, 8 bits
    moved = weights + tokens * depth + tokens * chosen * inner * out
    return Work(busy * columns, np.maximum(launched - busy, 0) * columns, depth, moved)


def profile_all(data: Candidates, gpu: str, folder: Path) -> dict[str, list[KernelProfile]]:
    """Return the profiles of all kernels, with both lengths of the loop."""
    found = {}
    for symbol in np.unique(data.symbol):
        path = find_code_object(folder, gpu, str(symbol))
        found[str(symbol)] = [profile_kernel(path, gpu, depth) for depth in DEPTHS]
    return found


def simulate_all(
    data: Candidates, work: Work, arch: Arch, profiles: Mapping[str, Sequence[KernelProfile]]
) -> dict[tuple[int, ...], Floats]:
    """Return the times of the pairs by the timeline in µs, for each choice of clocks."""
    blocks, idle = np.ceil(work.busy / arch.compute.units), count_idle(work, arch)
    found = {values: np.empty(len(data.us)) for values in itertools.product(*CHOICES.values())}
    for number, (symbol, pair) in enumerate(profiles.items()):
        here = data.symbol == symbol
        for values, us in found.items():
            changed = dict(zip(CHOICES, values, strict=True))
            short, long = (simulate_unit(profile, changed).count(blocks[here]) for profile in pair)
            us[here] = (interpolate(short, long, DEPTHS, work.depth[here]) + idle[here]) / arch.compute.clock_mhz
        print(f"{arch.name} {number + 1}/{len(profiles)} {pair[0].kernel}", file=sys.stderr)
    return found


def count_all(
    data: Candidates, work: Work, arch: Arch, profiles: Mapping[str, Sequence[KernelProfile]]
) -> dict[tuple[float, float], Floats]:
    """Return the times of the pairs by instruction counts alone in µs, for each choice of stalls."""
    blocks, idle = np.ceil(work.busy / arch.compute.units), count_idle(work, arch)
    stalls = itertools.product(STALLS["stall"], STALLS["sharpness"])
    found = {values: np.empty(len(data.us)) for values in stalls}
    for symbol, pair in profiles.items():
        here = data.symbol == symbol
        for values, us in found.items():
            short, long = (count_issue(profile, blocks[here], *values) for profile in pair)
            us[here] = (interpolate(short, long, DEPTHS, work.depth[here]) + idle[here]) / arch.compute.clock_mhz
    return found


def count_issue(profile: KernelProfile, blocks: Floats, stall: float, sharpness: float) -> Floats:
    """Return the clocks in which waves issue, longer the fewer work-groups share a unit.

    A unit has as many SIMDs as a work-group has waves, so each SIMD issues for one wave of each work-group.
    """
    issue = load_machine(load_arch(profile.arch)).issue * profile.executed / profile.waves
    together = np.minimum(blocks, profile.blocks_per_unit)
    return blocks * issue * (1 + ((1 + stall) / together) ** sharpness) ** (1 / sharpness)


def count_idle(work: Work, arch: Arch) -> Floats:
    """Return the clocks of a unit's idle work-groups: their starts."""
    return load_machine(arch).count_start_interval(WAVES) * work.idle / arch.compute.units


def fit_all(times: Mapping[Any, Floats], least: Floats, data: Candidates) -> Fitted:
    """Fit the numbers on all kernels of a GPU, and for each tile on the kernels with another one.

    Kernels of one tile differ only in their prefetch, scales or type, so they are left out together.
    """
    modelled = {
        (*values, share): Modelled(us, least / share)
        for (values, us), share in itertools.product(times.items(), SHARES)
    }
    values, launch, factor = fit(modelled, data.us, np.ones(len(data.us), bool))
    left_out = np.empty(len(data.us))
    tile = np.column_stack([data.kernel["block_m"], data.kernel["block_n"]])
    for one in np.unique(tile, axis=0):
        here = (tile == one).all(1)
        own, start, scale = fit(modelled, data.us, ~here)
        left_out[here] = modelled[own].only(here).scale(start, scale)
    text = f"{values}, launch {launch:.1f} us, clocks x {factor:.2f}"
    return Fitted(modelled[values].scale(launch, factor), left_out, text)


def predict_all(data: Candidates, arch: Arch, folder: Path) -> dict[str, Floats]:
    """Return the times of the pairs of one GPU in µs, by method."""
    work = count_work(data)
    profiles = profile_all(data, arch.name, folder)
    least = work.bytes / (arch.memory.bandwidth_gbs * 1e3)
    times, machine, launch = simulate_all(data, work, arch, profiles), load_machine(arch), arch.compute.launch_us
    plain = times[tuple(getattr(machine, name) for name in CHOICES)]
    timeline = fit_all(times, least, data)
    counts = fit_all(count_all(data, work, arch, profiles), least, data)
    print(f"{arch.name}, {tuple(CHOICES)} and bandwidth: {timeline.text}")
    print(f"{arch.name}, {tuple(STALLS)} and bandwidth: {counts.text}")
    return {
        "analytical estimate, tile only": make_grouped(data).estimate,
        "timeline, nothing fitted": launch + plain,
        "the same with the bandwidth": Modelled(plain, least).scale(launch, 1.0),
        "timeline and bandwidth, fitted on all kernels": timeline.us,
        "timeline and bandwidth, each tile left out": timeline.left_out,
        "instruction counts and bandwidth, fitted on all kernels": counts.us,
        "instruction counts and bandwidth, each tile left out": counts.left_out,
    }


def load_timings() -> Candidates:
    """Load the timings of the hand-written kernels for the first stage."""
    data = load()
    return data.only((data.kernel["family"] == FAMILIES.index("asm")) & (data.words["stage"] == "stage1"))


def show(data: Candidates, predicted: Mapping[str, Floats], what: str) -> None:
    problems, kernels = (len(np.unique(each)) for each in (data.problem, data.symbol))
    title = f"{what}: {len(data.us)} timings, {kernels} kernels, {problems} problems"
    print_table([judge_pairs(method, us, data.us, data.problem, data.name) for method, us in predicted.items()], title)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the code objects by GPU: aiter_meta/hsa")
    given = parser.parse_args(arguments)
    data = load_timings()
    every: dict[str, Floats] = {}
    for units in UNITS:
        here = data.numbers["cu_num"] == units
        own = data.only(here)
        predicted = predict_all(own, load_gpu(units), given.folder)
        show(own, predicted, f"{units} units")
        for method, us in predicted.items():
            every.setdefault(method, np.empty(len(data.us)))[here] = us
    show(data, every, "both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
