"""Suggestions: legal, near, and never applied by themselves."""

from __future__ import annotations

import random

import pytest

import tilewright as tw
from config_samples import draw_breaking, list_strata
from tilewright import arch as archs
from tilewright.ops import OPS
from tilewright.ops.fields import ConfigBase
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations

BASE = {
    "variant": "standard", "dtype": "fp16", "layout": "rcr", "block": (128, 128, 32), "waves": (2, 2, 1),
    "mma": (32, 32, 16),
    "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle",
}  # fmt: skip


def test_explain_lists_passes_and_failures() -> None:
    config = tw.gemm.config(**{**BASE, "block": (256, 256, 128)})
    verdicts = tw.explain(config, "gfx942")

    failed = [v.violation for v in verdicts if v.violation]
    assert [str(v) for v in failed] == [
        "R401 lds-overflow: needs 131,072 bytes of LDS (1 × the larger of 131,072 for A and B and 8,192 for C), "
        "gfx942 has 65,536"
    ]
    assert len(verdicts) == len(tw.gemm.OP.rules)


def test_a_legal_config_gets_no_suggestions() -> None:
    assert tw.suggest(tw.gemm.config(**BASE), "gfx942") == []


def test_the_nearest_config_comes_first() -> None:
    config = tw.gemm.config(**{**BASE, "scheduler": "interwave"})
    best = tw.suggest(config, "gfx942")[0]

    assert dict(best.changes) in ({"scheduler": ("interwave", "intrawave")}, {"pipeline": ("compv3", "mem")})
    assert config.scheduler == "interwave"


def suggest_blocks(config: ConfigBase) -> list[tuple[int, ...]]:
    """The blocks that are suggested for an illegal attention config, in order."""
    found = tw.suggest(config, "gfx942")
    return [suggestion.changes["block"][1] for suggestion in found if suggestion.changes.keys() == {"block"}]


@pytest.mark.parametrize(
    ("hdim", "nearest"),
    [(104, [(128, 96), (128, 128), (128, 192)]), (144, [(160, 160), (128, 128), (128, 192)])],
)
def test_blocks_of_the_nearest_head_size_come_first(hdim: int, nearest: list[tuple[int, int]]) -> None:
    config = tw.fmha.OP.make_example({"block": (128, 128, 32, hdim, 32, hdim)})
    assert [(block[3], block[5]) for block in suggest_blocks(config)[:3]] == nearest


def test_blocks_of_the_same_length_come_before_all_others() -> None:
    """gfx942 has more blocks of six numbers than are tried, and has them before those of nine."""
    config = tw.fmha.config(
        family="dq_dk_dv",
        mode="batch",
        dtype="fp16",
        pipeline="kr_ktr_vr_iglp",
        block=(32, 128, 72, 32, 72, 32, 32, 72, 72),
        waves=(1, 4, 1, 4, 1, 1, 1, 4, 1),
        mma=(16, 16, 32, 16, 16, 16, 16, 16, 32),
    )
    assert suggest_blocks(config)[0] == (32, 128, 64, 32, 64, 32, 32, 64, 64)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_suggestion_is_legal_and_ranked(op: Op) -> None:
    rng = random.Random(7)
    answered = 0
    for name in ("gfx942", "gfx950", "gfx1201"):
        arch = archs.load(name)
        spread = list_strata(op, arch)
        for rule in op.rules:
            config = draw_breaking(op, arch, rng, rule.code, spread, tries=5)
            if config is None:
                continue
            found = tw.suggest(config, name)
            answered += bool(found)
            for suggestion in found:
                assert find_violations(op.rules, suggestion.config, arch) == []
                assert suggestion.changes
            assert [(len(s.changes), s.distance) for s in found] == sorted((len(s.changes), s.distance) for s in found)
    assert answered > min(20, 1.4 * len(op.rules))  # on three GPUs; an op may have few rules
