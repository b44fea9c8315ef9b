"""The fit rules in Python and `supports` of the built kernel give the same answer.

The host side of a kernel is compiled for real and asked through its C interface.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from host_library import TW_BAD_ARGS, TW_OK, TW_UNSUPPORTED, Args, args_of, host_library, supports, text_of
from tilewright.building.toolchain import find

pytestmark = pytest.mark.compile

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
]
SIZES = [32, 64, 72, 100, 127, 128, 192]


@pytest.mark.parametrize("overrides", KERNELS, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_python_and_the_built_kernel_agree(overrides: dict[str, Any], tmp_path: Path) -> None:
    config = tw.gemm.config(**{**BASE, **overrides})
    kernel = tw.kernel_of(config, "gfx942")
    library = host_library(kernel, find(), tmp_path)
    counts = {True: 0, False: 0}
    batches = (1, 3) if config.variant == "batched" else (1, 2)
    for m, n, k, k_batch, batch in itertools.product(SIZES, SIZES, SIZES, (1, 2, 3), batches):
        problem = tw.gemm.Problem(
            m=m, n=n, k=k, k_batch=k_batch, batch=batch, layout=config.layout, dtype=config.dtype_a,
            num_d=config.num_d, elementwise=config.elementwise,
        )  # fmt: skip
        violations = tw.fits(config, problem, "gfx942")
        status = supports(library, kernel, args_of(problem))
        assert status in (TW_OK, TW_UNSUPPORTED)
        assert (status == TW_OK) == (not violations), (problem, violations, text_of(library, kernel, "message"))
        counts[status == TW_OK] += 1

    assert min(counts.values()) > 20
    assert text_of(library, kernel, "name") == kernel.slug
    assert supports(library, kernel, Args(size=8)) == TW_BAD_ARGS
    assert "older ABI" in text_of(library, kernel, "message")
