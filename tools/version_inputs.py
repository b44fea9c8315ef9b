"""Draw the inputs for comparing two versions of the sources: configs, spaces, kernels and problems as plain JSON.

    PYTHONPATH=SRC:TOOLS tools/version_inputs.py OUT [--seed 16] [--configs 60000]

The inputs are drawn with one version of the sources, mostly the earlier one. Both versions then read them from the
file, so that later changes of candidates or rules cannot change the inputs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import TilewrightError
from tilewright.ops import OPS, dump_problem, load_problem
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations
from version_configs import TARGETED, Row, Sampler, Values, dump_values, to_json

SPACES, KERNELS, FACTS, TRIALS, PAIRS, INVALID = 1000, 300, 1500, 300, 2000, 300
# Sizes for problems: 1, primes, around powers of two, and around the limits of 31 and 32 bits.
SIZES = (1, 2, 3, 7, 8, 16, 17, 31, 32, 64, 96, 100, 127, 128, 129, 255, 256, 1000, 1024, 4096, 8191, 65536, 2**20)
HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40)


class ProblemSampler:
    """Draws problems of one op for given configs: their trials, and changes of those."""

    def __init__(self, sampler: Sampler) -> None:
        self.op, self.rng, self.configs = sampler.op, sampler.rng, sampler
        self.violated: Counter[str] = Counter()
        self.values: dict[str, list[Any]] = {}

    def draw_pairs(self, rows: Sequence[Row], number: int) -> list[Row]:
        """Pairs of config and problem: trials, changed trials, and changes of the fit rules' examples."""
        assert self.op.execution is not None
        trials: list[Row] = []
        for gpu, values in rows:
            problems = self.op.execution.trials(self.op.make_config(**values), archs.load(gpu))
            trials += [[gpu, values, json.loads(dump_problem(each))] for each in self.rng.sample(problems, 4)]
        for *_, problem in trials:
            for name, value in problem.items():
                self.values.setdefault(name, []).append(value)
        pairs: list[Row] = []
        for rule in self.op.fit_rules:
            self._draw_violating(pairs, rule.code, rule.arch, dict(rule.bad), min(TARGETED, number // 40))
        while len(pairs) < number:
            gpu, values, problem = self.rng.choice(trials)
            way = self.rng.random()
            if way < 0.6:
                problem = self.change(problem)
            elif way < 0.7:
                gpu, values = self.rng.choice(rows)
            self._add(pairs, gpu, values, problem)
        self.rng.shuffle(pairs)
        print(f"{self.op.name}: {len(pairs):,} pairs of config and problem, {len(self.violated)} fit rules violated")
        return pairs

    def change(self, problem: Values) -> Values:
        changed = dict(problem)
        for name in self.rng.sample(list(problem), self.rng.randint(1, 2)):
            changed[name] = self._draw_value(name, problem[name])
        return changed

    def _draw_value(self, name: str, old: object) -> Any:
        if type(old) is int and self.rng.random() < 0.5:
            return self.rng.choice(HUGE if self.rng.random() < 0.1 else (*SIZES, old + 1, max(old - 1, 0), 2 * old))
        return self.rng.choice(self.values[name])

    def _judge(self, gpu: str, values: Values, problem: Values) -> list[str] | None:
        """The codes of the violated fit rules; None if there is no such problem."""
        try:
            loaded = load_problem(self.op.problem_type, problem)
        except TilewrightError:
            return None
        broken = find_violations(self.op.fit_rules, self.op.make_config(**values), loaded, archs.load(gpu))
        return [violation.code for violation in broken]

    def _add(self, pairs: list[Row], gpu: str, values: Values, problem: Values) -> None:
        codes = self._judge(gpu, values, problem)
        if codes is not None:
            self.violated.update(codes)
            pairs.append([gpu, values, problem])

    def _draw_violating(self, pairs: list[Row], code: str, gpu: str, bad: Values, number: int) -> None:
        """Pairs that violate a fit rule, by a walk from its bad example over pairs that violate it, too."""
        sizes = bad.pop("problem", {})
        example = load_problem(self.op.problem_type, to_json({**self.op.example_problem, **sizes}))
        found = [(gpu, dump_values(self.op.make_example(bad)), json.loads(dump_problem(example)))]
        for _ in range(number * 20):
            _, values, problem = self.rng.choice(found)
            if self.rng.random() < 0.7:
                problem = self.change(problem)
            else:
                values = self.configs.change(gpu, values, 1)
                if self.configs.judge(gpu, values) != []:
                    continue
            if code in (self._judge(gpu, values, problem) or ()):
                found.append((gpu, values, problem))
            if len(found) == number:
                break
        for pair in found:
            self._add(pairs, *pair)


def make_invalid(rng: random.Random, values: Values) -> Values:
    """The values with one misspelt field, misspelt value, value of a wrong type, or a missing field."""
    name = rng.choice(list(values))
    others = {each: value for each, value in values.items() if each != name}
    ways: tuple[Callable[[], Values], ...] = (
        lambda: {**others, name[:-1] + "x": values[name]},
        lambda: {**others, name: f"{values[name]}x"},
        lambda: {**others, name: rng.choice((-1, 0, 10**6, 1.5, None, [], [1, 2], "", [0, 0, 0], {"m": 1}))},
        lambda: others,
    )
    return rng.choice(ways)()


def draw_op(op: Op, seed: int, number: int) -> dict[str, list[Row]]:
    """All inputs of an op by section."""
    sampler = Sampler(op, seed)
    configs = sampler.draw_configs(number)
    legal = sampler.draw_legal_rows(FACTS)
    invalid = [[gpu, make_invalid(sampler.rng, values)] for gpu, values in legal[:INVALID]]
    problems = ProblemSampler(sampler)
    pairs = problems.draw_pairs(legal[:TRIALS], PAIRS)
    print_rare(op, sampler.violated, problems.violated)
    return {
        "configs": configs,
        "spaces": sampler.draw_spaces(SPACES),
        "kernels": legal[:KERNELS],
        "facts": legal,
        "trials": legal[:TRIALS],
        "pairs": pairs,
        "invalid_configs": invalid,
        "invalid_problems": [[gpu, make_invalid(sampler.rng, problem)] for gpu, _, problem in pairs[:INVALID]],
    }


def print_rare(op: Op, violated: Counter[str], unfit: Counter[str]) -> None:
    """Print how many configs violate each rule, the rarest first."""
    for what, rules, counts in (("rules", op.rules, violated), ("fit rules", op.fit_rules, unfit)):
        ordered = sorted((counts[rule.code], rule.code) for rule in rules)
        print(f"{op.name} {what}: " + ", ".join(f"{code} {count}" for count, code in ordered), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--configs", type=int, default=60_000, help="of each op")
    options = parser.parse_args()
    ops = {op.name: draw_op(op, options.seed, options.configs) for op in OPS}
    text = json.dumps(ops)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    with gzip.open(options.out, "wt", compresslevel=6, encoding="utf-8") as file:
        file.write(f'{{"digest": "{digest}", "seed": {options.seed}, "ops": {text}}}')
    print(f"wrote {options.out}: digest {digest}")


if __name__ == "__main__":
    main()
