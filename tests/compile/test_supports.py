"""The fit rules in Python and `supports` of the built kernel give the same answer.

The host side of a kernel is compiled for real and asked through its C interface, about random problems: small ones,
and ones with extents, strides, counts and spans around 2³¹ and 2³².
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.proof.host_library import TW_BAD_ARGS, TW_OK, TW_UNSUPPORTED, build_host_library, call_supports, call_text
from tilewright import arch as archs
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op
from tilewright.ops.gemm.call import CALL

pytestmark = pytest.mark.compile

GEMM = find_op("gemm")
BASE: dict[str, Any] = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": (64, 64, 32),
    "waves": (2, 2, 1),
    "mma": (32, 32, 8),
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "cshuffle",
}
KERNELS: list[dict[str, Any]] = [
    {"split_k": True},
    {"layout": "crr", "pad_n": True, "pipeline": "mem", "mma": (16, 16, 16), "split_k": True},
    {"layout": "ccr", "pad_m": True, "pad_k": True, "pipeline": "compv4"},
    {"variant": "multi_d", "num_d": 2, "elementwise": "MultiDAdd", "pad_k": True},
    {"variant": "batched", "layout": "rrr", "epilogue": "default", "pad_n": True},
    {"pipeline": "compv6", "dtype": "bf16", "pad_m": True, "pad_k": True, "split_k": True},
    {
        "variant": "preshuffle",
        "pipeline": "preshufflev2",
        "scheduler": "default",
        "waves": (1, 4, 1),
        "mma": (16, 16, 16),
        "pad_k": True,
        "pad_n": True,
    },
    {
        "variant": "preshuffle",
        "pipeline": "preshufflev2",
        "scheduler": "default",
        "waves": (1, 2, 1),
        "mma": (16, 16, 16),
        "pad_n": True,
        "permute_n": True,
    },
]
# One of each variant; the deep tier has all.
IN_CI = (0, 3, 4, 6)
ARCH = "gfx942"
STRIDES = ("stride_a", "stride_b", "stride_c")


def sizes(block: int, unit: int) -> st.SearchStrategy[int]:
    """Any size, and often one that a tile or a vector divides, or nearly."""
    multiples = st.builds(lambda n, of: n * of, st.integers(1, 6), st.sampled_from([unit, block, 2 * block]))
    return st.one_of(
        multiples,
        multiples,
        st.builds(lambda n, off: max(1, n + off), multiples, st.sampled_from([-1, 1])),
        st.integers(1, 700),
    )


@st.composite
def problems(draw: st.DrawFn, config: Any) -> Any:
    """Problems of a kernel's types, with strides that have gaps or not."""
    block, batched = config.block, config.variant == "batched"
    unit = {"m": 8, "n": draw(st.sampled_from([8, config.mma.n])), "k": draw(st.sampled_from([8, config.mma.k]))}
    packed = tw.gemm.Problem(
        m=draw(sizes(block.m, unit["m"])),
        n=draw(sizes(block.n, unit["n"])),
        k=draw(sizes(block.k, unit["k"])),
        k_batch=draw(st.sampled_from([1, 1, 1, 2, 3, 5])),
        batch=draw(st.sampled_from([1, 2, 3] if batched else [1, 1, 1, 1, 2])),
        layout=config.layout, dtype=config.dtype_a, num_d=config.num_d, elementwise=config.elementwise,
    )  # fmt: skip
    gaps = {name: draw(st.sampled_from([0, 0, 1, 8])) for name in STRIDES}
    return dataclasses.replace(packed, **{name: getattr(packed, name) + gap for name, gap in gaps.items()})


def powers(least: int = 10, most: int = 32) -> st.SearchStrategy[int]:
    """A power of two, sometimes one off, or a few tiles off."""
    return st.builds(
        lambda bits, off: max(1, (1 << bits) + off),
        st.integers(least, most),
        st.sampled_from([0, 0, 0, -1, 1, -64, 64]),
    )


@st.composite
def large_problems(draw: st.DrawFn, config: Any) -> Any:
    """Problems with matrices around what 32 bits address: long, wide or with large gaps, or many of them."""
    sizes = {name: draw(st.one_of(st.sampled_from([1, 64, 65, 128]), powers())) for name in ("m", "n", "k")}
    large = {name: draw(st.sampled_from([0, 0, 0, 1 << 24, 1 << 30, (1 << 31) - 64])) for name in STRIDES}
    few = st.sampled_from([1, 1, 2, 3])
    packed = tw.gemm.Problem(
        **sizes,
        k_batch=draw(st.one_of(few, few, powers(31, 34))) if config.split_k else 1,
        batch=draw(st.one_of(few, powers(1, 34))) if config.variant == "batched" else 1,
        layout=config.layout, dtype=config.dtype_a, num_d=config.num_d, elementwise=config.elementwise,
    )  # fmt: skip
    return dataclasses.replace(packed, **{name: max(getattr(packed, name), wide) for name, wide in large.items()})


def refusals(library: Any, kernel: Any, problem: Any) -> list[str]:
    """The rules that refuse the problem; the library must agree."""
    violations = tw.fits(kernel.config, problem, ARCH)
    status = call_supports(library, kernel, CALL.make_arguments(problem))
    assert status in (TW_OK, TW_UNSUPPORTED)
    assert (status == TW_OK) == (not violations), (problem, violations, call_text(library, kernel, "message"))
    return [violation.code for violation in violations]


@pytest.mark.parametrize("problem_count", [200, pytest.param(4000, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    "overrides",
    [pytest.param(o, marks=() if i in IN_CI else pytest.mark.deep) for i, o in enumerate(KERNELS)],
    ids=lambda o: "-".join(str(v) for v in o.values()),
)
def test_python_and_the_built_kernel_agree(overrides: dict[str, Any], problem_count: int, tmp_path: Path) -> None:
    config = tw.gemm.config(**{**BASE, **overrides})
    kernel = tw.kernel_of(config, ARCH)
    library = build_host_library(kernel, find_toolchain(), tmp_path)
    counts = {True: 0, False: 0}
    too_large: list[bool] = []

    @given(problem=st.one_of(problems(config), problems(config), large_problems(config)))
    @settings(max_examples=problem_count, database=None, derandomize=True)
    def agree(problem: Any) -> None:
        codes = refusals(library, kernel, problem)
        counts[not codes] += 1
        too_large.append(codes == ["S507"])

    agree()
    assert sum(too_large) > problem_count / 200
    # Every problem that trials make is one that the kernel takes.
    assert GEMM.execution is not None
    for problem in GEMM.execution.trials(config, archs.load(ARCH)):
        assert call_supports(library, kernel, CALL.make_arguments(problem)) == TW_OK, problem
    assert min(counts.values()) > problem_count / 70
    assert call_text(library, kernel, "name") == kernel.slug
    assert call_supports(library, kernel, CALL.type(size=8)) == TW_BAD_ARGS
    assert "older ABI" in call_text(library, kernel, "message")
