"""Profiles of attention: what each integration gets, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.fmha.profiles import FP8, PROFILES

FMHA = find_op("fmha")
ARCH = archs.load("gfx942")
DQ_DK_DV = {
    **{"family": "dq_dk_dv", "pipeline": "kr_ktr_vr", "block": "32x128x64x32x64x32x32x64x64", "pad_q": False},
    **{"waves": "1x4x1x4x1x1x1x4x1", "mma": "16x16x32x16x16x16x16x16x32", "pad_k": False},
}
LSE = {"lse": True}


def wanted(profile: str, overrides: dict[str, Any]) -> bool:
    return PROFILES[profile].wants(FMHA.make_example(overrides), ARCH)


@pytest.mark.parametrize(
    ("profile", "taken", "left_out"),
    [
        ("ck_default", [{}, {"dtype": "fp8"}], [{"dtype": "fp32"}]),
        (
            "flash",
            [LSE, {**LSE, "bias": "alibi", "dropout": True}, {**LSE, "mode": "group"}, DQ_DK_DV],
            [{}, {**LSE, "bias": "elementwise"}, {**LSE, "soft_cap": True}, {**LSE, "dtype": "fp8bf16"}],
        ),
        (
            "pytorch",
            [LSE, {**LSE, "bias": "elementwise"}, {**DQ_DK_DV, "bias": "elementwise", "bias_gradient": True}],
            [{}, {**LSE, "bias": "alibi"}, {**LSE, "v_layout": "col"}, {**LSE, "family": "splitkv"}],
        ),
        (
            "aiter",
            [{}, {"soft_cap": True}, {"dtype": "fp8bf16"}, {"family": "batch_prefill"}],
            [{"dtype": "fp32"}, {"static_quant": True}, {"family": "appendkv"}, {"sink": 4}],
        ),
        ("fp32", [{"dtype": "fp32"}], [{}, {"dtype": "fp8fp32"}]),
        ("fp8", [{"dtype": name} for name in FP8], [{}, {"dtype": "fp32"}]),
    ],
)
def test_what_a_profile_takes(profile: str, taken: list[dict[str, Any]], left_out: list[dict[str, Any]]) -> None:
    assert all(wanted(profile, overrides) for overrides in taken)
    assert not any(wanted(profile, overrides) for overrides in left_out)


def test_every_profile_has_kernels_on_a_large_gpu_and_says_why() -> None:
    for name, profile in PROFILES.items():
        assert len(profile.doc) > 20, name
        space = FMHA.spaces()["default"].spaces[0]
        kept = space.iter("gfx942", lambda config, profile=profile: profile.wants(config, ARCH))
        assert next(kept, None) is not None, name
