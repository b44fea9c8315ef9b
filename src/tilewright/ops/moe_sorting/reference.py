"""Random inputs of a sorting, its reference outputs, the elements that must be exact, and problems to try.

Imports NumPy: import this module only where arrays are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.moe_sorting.config import THREADS, Config, count_step
from tilewright.ops.moe_sorting.problem import Problem, list_tensors
from tilewright.ops.moe_sorting.rules import FIT_RULES, count_most_experts
from tilewright.ops.rule import is_legal
from tilewright.ops.tolerance import Tolerance

PLACE = 2**24  # of the bits of an entry above those of the token
UNKNOWN = (-1_000_000, 1_000_000, -(2**31), 2**31 - 1)  # numbers of no expert, far from those that exist


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Experts of each token. With seed 0 all tokens have the same, all different, so that all others are empty;
    otherwise half of the experts are drawn more often than the rest, a fifth does not exist or is repeated."""
    generator = np.random.default_rng([seed, problem.tokens, problem.experts, problem.k])
    chances = generator.random((1 if seed == 0 else problem.tokens, problem.experts))
    chances[:, generator.permutation(problem.experts)[: problem.experts // 2]] += 0.5
    chosen = np.argsort(-chances, axis=1)[:, : problem.k]
    ids = np.broadcast_to(chosen, (problem.tokens, problem.k)).astype(np.int32)
    if seed != 0:
        unknown = generator.choice([-1, problem.experts, *UNKNOWN], ids.shape)
        kinds = generator.random(ids.shape)
        ids = np.select([kinds < 0.1, kinds < 0.2], [unknown, ids[:, :1]], ids).astype(np.int32)
    result = {"topk_ids": ids, "topk_weights": generator.random(ids.shape).astype(np.float32)}
    if problem.masked:
        result["expert_mask"] = (generator.random(problem.experts) < (0.9 if seed == 0 else 0.5)).astype(np.int32)
    return result


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, Floats]:  # noqa: ARG001
    """The outputs by name. Elements that kernels do not write are NaN."""
    results = {tensor.name: np.full(tensor.shape, np.nan) for tensor in list_tensors(problem) if tensor.output}
    ids, weights = np.asarray(given["topk_ids"]), np.asarray(given["topk_weights"], dtype=np.float64)
    end = number = 0
    for expert in range(problem.experts):
        if problem.masked and not given["expert_mask"][expert]:
            continue
        tokens, places = np.nonzero(ids == expert)
        blocks = -(-len(tokens) // problem.unit)
        if blocks == 0 and problem.keep_empty:
            blocks = 1
        block = slice(end, end + blocks * problem.unit)
        results["sorted_ids"][block] = problem.tokens + PLACE * problem.k
        results["sorted_weights"][block] = 0
        last = np.diff(tokens, append=problem.tokens) > 0  # of equal experts of a token
        tokens, places = tokens[last], places[last]
        results["sorted_ids"][end : end + len(tokens)] = tokens + PLACE * places
        results["sorted_weights"][end : end + len(tokens)] = weights[tokens, places]
        results["sorted_experts"][end // problem.unit : block.stop // problem.unit] = number
        number += 1
        end = block.stop
    results["totals"][:] = end, problem.tokens
    return {name: np.where(values >= 2.0**31, values - 2.0**32, values) for name, values in results.items()}


def compute_tolerance(
    config: Config,  # noqa: ARG001  (all kernels have the same results)
    problem: Problem,  # noqa: ARG001
    inputs: Mapping[str, NDArray[Any]],  # noqa: ARG001
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,  # noqa: ARG001
) -> dict[str, Tolerance]:
    """Results are exact. Elements behind the last entry may have any value."""
    found = {}
    for name, values in reference.items():
        limits = np.where(np.isnan(np.asarray(values, dtype=np.float64)), np.inf, 0.0)
        found[name] = Tolerance(limits, limits)
    return found


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Problems at the edges of a kernel: one token, more than are held at once, one expert, as many as fit, blocks of
    one entry and of many.

    The compiler unrolls the loops over the table and over the empty entries of a block. Other numbers of rounds use
    other parts of these loops: a table that most threads clear once and the rest twice, or 49 empty entries, which are
    three times 16 and one.
    """
    step, most = count_step(config), count_most_experts(config)
    round_experts = 3 * THREADS // 2 // (step + 2) - 1  # experts of a table with cells for one and a half rounds
    sizes = (
        (1, 8, 2, 16),
        (3, 64, 6, 32),
        (33, 128, 8, 16),
        (step, 1, 1, 64),
        (2 * step + 1, min(most, 256), 4, 1),
        (step + 3, 5, 5, 7),
        (70, min(most, 400), 8, 64),
        (step - 1, round_experts, 4, 3),
        (3 * step + 2, min(most, 103), 4, 3),
        (11 * step + 3, min(most, 161), 1, 7),
        (79, 55, 4, 64),
    )
    found = [
        Problem(tokens=tokens, experts=experts, k=min(k, experts), unit=unit, **_get_flags(config))
        for tokens, experts, k, unit in sizes
    ]
    return tuple(problem for problem in found if is_legal(FIT_RULES, config, problem, arch))


def _get_flags(config: Config) -> dict[str, bool]:
    return {"masked": config.masked, "keep_empty": config.keep_empty}
