"""Draw random configs and spaces of an op as plain JSON, for comparing two versions of the sources.

Many configs are legal and the others violate few rules: a config of random values violates many rules at once, and so
says little about each. Every rule is violated by some configs.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.base.errors import TilewrightError
from tilewright.ops.fields import ConfigBase, TileType, dump_config, list_fields
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations
from tilewright.ops.space import Space

Values = dict[str, Any]
Row = list[Any]  # the name of a GPU, then JSON values

LEGAL_SHARE, RANDOM_SHARE = 0.35, 0.05
# Configs with more violations are left out, except for those of random values.
MOST_VIOLATIONS = 5
MOST_ATTEMPTS = 1000  # for each config that is wanted: usually a few are enough
BASES = 300  # legal configs of each GPU, drawn from all strata; the others are changes of these
TARGETED = 60  # configs that are drawn to violate a given rule
FEWEST_COMBINATIONS, MOST_COMBINATIONS = 20, 3_000_000  # of a space, so that it can be counted in a second
# Values of shorthands, by op.
SHORTHANDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "gemm": {"dtype": ("fp16", "bf16", "fp8", "bf8", "int8", "fp8*bf8", "fp32")},
    "grouped_conv": {
        "dtype": ("fp16", "bf16", "fp32", "fp8"),
        "layout": ("nwgc", "nhwgc", "ndhwgc"),
        "variant": ("forward", "backward_data", "backward_weight"),
    },
    "fmha": {"pads": ("none", "queries", "lengths", "vectors", "any", "heads"), "tile": ("*",)},
}


def to_json(value: object) -> Any:
    """The value as in JSON: tuples become lists."""
    return json.loads(json.dumps(value))


def dump_values(config: ConfigBase) -> Values:
    """The fields of a config that differ from their defaults, as a user writes them."""
    dumped = dump_config(config)
    return {n: dumped[n] for n, f in list_fields(type(config)).items() if f.required or getattr(config, n) != f.default}


class Sampler:
    """Draws configs and spaces of one op. Most are made from legal configs by changing a few fields."""

    def __init__(self, op: Op, seed: int) -> None:
        self.op = op
        self.rng = random.Random(f"{seed} {op.name}")
        self.gpus = archs.arch_names()
        self.fields = list_fields(op.config_type)
        self.defaults = {name: to_json(field.default) for name, field in self.fields.items() if not field.required}
        self.seen: set[str] = set()
        self.violated: Counter[str] = Counter()
        self.examples: dict[str, list[Any]] = {name: [] for name in self.fields}
        for example in (example for rule in op.rules for example in (rule.good, rule.bad)):
            for name, value in example.items():
                self.examples[name].append(to_json(value))
        self.legal = {gpu: self._draw_bases(gpu) for gpu in self.gpus}

    def _draw_bases(self, gpu: str) -> list[Values]:
        arch = archs.load(gpu)
        kinds: dict[Any, list[Values]] = {}
        # `Op.kinds` in versions before `Kind`.
        names: Any = getattr(self.op, "structure_fields", self.op.kinds)
        for fixed in sorted(list_strata(self.op, arch), key=lambda _: self.rng.random()):
            kinds.setdefault(tuple(fixed[name] for name in names), []).append(fixed)
        # One stratum of each kind after the other, since some kinds have far more strata than others.
        order = [fixed for each in itertools.zip_longest(*kinds.values()) for fixed in each if fixed]
        drawn = (draw_legal(self.op, arch, self.rng, fixed) for fixed in itertools.cycle(order))
        return [dump_values(config) for config in itertools.islice(filter(None, drawn), BASES)]

    def judge(self, gpu: str, values: Values) -> list[str] | None:
        """The codes of the violated rules; None if a field does not accept its value."""
        try:
            config = self.op.make_config(**values)
        except TilewrightError:
            return None
        return [v.code for v in find_violations(self.op.rules, config, archs.load(gpu))]

    def change(self, gpu: str, values: Values, most: int = 3) -> Values:
        """The values with one to `most` fields changed."""
        names = self.rng.sample(list(self.fields), self.rng.randint(1, most))
        return self._drop_defaults({**values, **{name: self.draw_value(gpu, name, values) for name in names}})

    def _drop_defaults(self, values: Values) -> Values:
        """The values without those that are defaults, so that equal configs are equal values."""
        return {
            name: value for name, value in values.items() if name not in self.defaults or value != self.defaults[name]
        }

    def draw_value(self, gpu: str, name: str, values: Values) -> Any:
        """A value of a field: a candidate of the GPU, one of a rule's example, or a changed tile."""
        way, old = self.rng.random(), values.get(name)
        if isinstance(old, list) and old and way < 0.35:
            place = self.rng.randrange(len(old))
            changed = max(1, int(old[place] * self.rng.choice((0.5, 0.5, 2, 2, 1.5, 3, 0.25, 4))))
            return [*old[:place], changed, *old[place + 1 :]]
        if way < 0.55 and self.examples[name]:
            return self.rng.choice(self.examples[name])
        candidates = self.op.list_candidates(name, archs.load(gpu))
        return to_json(self.rng.choice(candidates)) if candidates else self.rng.randint(0, 8)

    def add(self, rows: list[Row], gpu: str, values: Values, codes: Sequence[str]) -> bool:
        """Add a config to the rows if it is a new one."""
        key = json.dumps([gpu, values], sort_keys=True)
        if key in self.seen:
            return False
        self.seen.add(key)
        self.violated.update(codes)
        rows.append([gpu, values])
        return True

    def draw_configs(self, number: int) -> list[Row]:
        """Configs in random order, as many for each GPU: some violate a given rule, some are legal, a few random."""
        rows: list[Row] = []
        for rule in self.op.rules:
            start = dump_values(self.op.make_example(rule.bad))
            self._draw_violating(rows, rule.code, rule.arch, start, min(TARGETED, number // (3 * len(self.op.rules))))
        counts = Counter(gpu for gpu, _ in rows)
        legal = 0
        for gpu in self.gpus:
            wanted = number // len(self.gpus) + (self.gpus.index(gpu) < number % len(self.gpus)) - counts[gpu]
            legal += self._draw_near(rows, gpu, max(wanted, 0))
        self.rng.shuffle(rows)
        print(f"{self.op.name}: {len(rows):,} configs, {legal:,} of them legal, {len(self.violated)} rules violated")
        return rows

    def _draw_violating(self, rows: list[Row], code: str, gpu: str, start: Values, number: int) -> None:
        """Configs that violate a rule, by a walk from its bad example over configs that violate it, too."""
        found = [(gpu, start)]
        self.add(rows, gpu, start, self.judge(gpu, start) or ())
        for attempt in range(number * 40):
            if len(found) >= number:
                return
            place, old = self.rng.choice(found)
            place = self.rng.choice(self.gpus) if self.rng.random() < 0.3 else place
            values = self.change(place, old, 2)
            codes = self.judge(place, values)
            few = codes is not None and len(codes) <= MOST_VIOLATIONS + attempt // (number * 10)
            if codes and few and code in codes and self.add(rows, place, values, codes):
                found.append((place, values))

    def _draw_near(self, rows: list[Row], gpu: str, number: int) -> int:
        """Changes of legal configs: a given share legal, the others with few violations. The number of legal ones."""
        pool = self.legal[gpu]
        random_ones, legal = int(number * RANDOM_SHARE), int(number * LEGAL_SHARE)
        left = {True: legal, False: number - random_ones - legal}  # by whether they are legal
        for values in pool[: left[True]]:
            left[True] -= self.add(rows, gpu, values, ())
        for _ in range(number * MOST_ATTEMPTS):  # an op may have fewer configs
            if not any(left.values()):
                break
            values = self.change(gpu, self.rng.choice(pool))
            codes = self.judge(gpu, values)
            if codes is None or len(codes) > MOST_VIOLATIONS or not left[not codes]:
                continue
            if self.add(rows, gpu, values, codes):
                left[not codes] -= 1
                if not codes:
                    pool.append(values)
        for _ in range(random_ones * MOST_ATTEMPTS):
            if not random_ones:
                break
            values = self._drop_defaults({name: self.draw_value(gpu, name, {}) for name in self.fields})
            codes = self.judge(gpu, values)
            random_ones -= codes is not None and self.add(rows, gpu, values, codes)
        return legal

    def draw_legal_rows(self, number: int) -> list[Row]:
        """Legal configs, spread evenly over the GPUs. The first ones of each GPU are of different strata."""
        pools = itertools.zip_longest(*(self.legal[gpu] for gpu in self.gpus))
        rows = ([gpu, values] for found in pools for gpu, values in zip(self.gpus, found, strict=True) if values)
        return list(itertools.islice(rows, number))

    def draw_space(self) -> Row:
        """A space around a legal config: some fields "*", some with a list of values, some in a shorthand."""
        gpu = self.rng.choice(self.gpus)
        declared = dict(self.rng.choice(self.legal[gpu]))
        self._declare_shorthands(declared)
        fixed = [name for name in self.fields if name in declared or not self.fields[name].required]
        for name in self.rng.sample(fixed, self.rng.randint(2, 10)):
            way = self.rng.random()
            if way < 0.35 and self.op.list_candidates(name, archs.load(gpu)):
                declared[name] = "*"
            elif way < 0.45 and self.fields[name].required and name in declared:
                del declared[name]
            elif way < 0.6 and name in declared and isinstance(kind := self.fields[name].kind, TileType):
                declared[name] = self._declare_table(kind, declared[name])
            else:
                old = [declared[name]] if name in declared else []
                declared[name] = old + [self.draw_value(gpu, name, declared) for _ in range(self.rng.randint(1, 4))]
        return [gpu, declared]

    def _declare_shorthands(self, declared: Values) -> None:
        for name, texts in SHORTHANDS.get(self.op.name, {}).items():
            if self.rng.random() < 0.25:
                for field in self.op.shorthands[name].fields:
                    declared.pop(field, None)
                chosen = self.rng.sample(texts, self.rng.randint(1, min(3, len(texts))))
                declared[name] = "*" if chosen == ["*"] else chosen

    def _declare_table(self, kind: TileType, tile: list[int]) -> dict[str, list[int]]:
        parts = dict(zip(kind.labels, tile, strict=True))
        return {label: sorted({part, self.rng.choice((part, 2 * part, 16, 64))}) for label, part in parts.items()}

    def draw_spaces(self, number: int) -> list[Row]:
        """Declared spaces with a bounded number of combinations."""
        rows: list[Row] = []
        while len(rows) < number:
            gpu, declared = self.draw_space()
            try:
                raw = Space(self.op, declared).count_raw(gpu)
            except TilewrightError:  # a value that a field does not accept, or a field that a shorthand stands for
                continue
            if FEWEST_COMBINATIONS <= raw <= MOST_COMBINATIONS:
                rows.append([gpu, declared])
        return rows
