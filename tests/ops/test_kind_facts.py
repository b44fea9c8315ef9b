"""Facts of GEMM's variants and of a convolution's directions agree with each other and with the rules."""

from __future__ import annotations

import random

import pytest

from config_samples import draw_legal
from tilewright import arch as archs
from tilewright.arch.spec import Shape
from tilewright.ops import find_op
from tilewright.ops.fields import list_fields
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.grouped_conv.kind import ConvKind, find_kind
from tilewright.ops.grouped_conv.kinds import KINDS as DIRECTIONS
from tilewright.ops.kind import Kind

GPU = archs.load("gfx942")
KINDS = [(op, kind) for op in ("gemm", "grouped_conv") for kind in find_op(op).kinds]
EACH_KIND = pytest.mark.parametrize(("name", "kind"), KINDS, ids=[f"{op}-{kind.name}" for op, kind in KINDS])
# Values of other fields that an optional field needs.
NEEDED = {"wave_groups": {"pipeline": "compv5", "wave_groups": 2, "waves": Shape(1, 1, 2), "epilogue": "default"}}


@EACH_KIND
def test_a_legal_config_may_set_every_field_of_its_kind(name: str, kind: Kind) -> None:
    op = find_op(name)
    fields = list_fields(op.config_type)
    assert kind.fields is not None
    for key in kind.fields:
        values = list(op.list_candidates(key, GPU) or (True,))
        if key == "vector":
            values = [Shape(8, 8, 8)]
        fixed = {op.kind_field: kind.name, **NEEDED.get(key, {})}
        usual = fields[key].default
        made = (draw_legal(op, GPU, random.Random(3), {key: value, **fixed}) for value in values if value != usual)
        assert any(made), key


@EACH_KIND
def test_a_legal_config_sets_only_fields_of_its_kind(name: str, kind: Kind) -> None:
    op, rng = find_op(name), random.Random(4)
    drawn = [draw_legal(op, GPU, rng, {op.kind_field: kind.name}) for _ in range(40)]
    configs = [config for config in drawn if config is not None]
    assert len(configs) > 20
    for config in configs:
        for key, found in list_fields(op.config_type).items():
            assert found.required or kind.has_field(key) or getattr(config, key) == found.default, key


@pytest.mark.parametrize("kind", DIRECTIONS, ids=lambda kind: kind.name)
def test_the_layout_of_a_direction_follows_from_its_tensors(kind: ConvKind) -> None:
    a, b, c = (kind.factors.find_dimension(letter) for letter in kind.vector_channels)

    assert kind.layout == ("r" if a == "k" else "c") + ("r" if b == "n" else "c") + ("r" if c == "n" else "c")


def test_a_config_and_a_problem_have_the_kind_of_their_direction() -> None:
    op = find_op("grouped_conv")
    for kind in DIRECTIONS:
        assert find_kind(op.make_example({"direction": kind.name})) is kind
        assert find_kind(Problem(**{**op.example_problem, "direction": kind.name})) is kind
