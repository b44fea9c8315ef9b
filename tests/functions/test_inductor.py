"""Tilewright's products among Inductor's candidates: they are timed, chosen, called by compiled code, or skipped."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from tests.functions.kernels import ARCH, PRODUCTS

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs g++ for tensors in host memory"),
]


@pytest.fixture(autouse=True)
def _emulate(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from torch._inductor import select_algorithm

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.compiler.reset()
    with tw.options(pool=PRODUCTS), twt.emulate(ARCH):
        yield
    select_algorithm.clear_feedback_savers()
    torch.compiler.reset()


def multiply(a: Any, b: Any) -> Any:
    return a @ b


def make_options(backends: str) -> dict[str, Any]:
    """Our options with other candidates of Inductor, but none in C++, which take seconds to compile."""
    return {**twt.make_inductor_options(), "max_autotune_gemm_backends": backends}


def test_a_product_is_timed_with_inductors_own() -> None:
    from torch._inductor import select_algorithm

    timed: dict[str, float] = {}
    select_algorithm.add_feedback_saver(lambda times, *_: timed.update({c.name: time for c, time in times.items()}))
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    compiled = torch.compile(multiply, options=make_options("ATEN"), fullgraph=True)
    torch.testing.assert_close(compiled(a, b), multiply(a, b), rtol=1e-5, atol=1e-5)
    assert {"mm", "tilewright_mm"} <= set(timed)
    # The emulated device takes milliseconds.
    assert 0 < timed["mm"] < timed["tilewright_mm"] < float("inf")


def test_compiled_code_calls_the_kernel_if_it_is_chosen() -> None:
    from torch._inductor.utils import run_and_get_code

    options = {**make_options(""), "fx_graph_cache": False}
    a, b = torch.randn(33, 20), torch.randn(8, 20).mT
    compiled = torch.compile(multiply, options=options, fullgraph=True)
    result, (code, *_) = run_and_get_code(compiled, a, b)
    torch.testing.assert_close(result, multiply(a, b), rtol=1e-5, atol=1e-5)
    assert "extern_kernels.tilewright_mm(" in code


def test_a_product_that_no_kernel_supports_is_logged_and_left_to_inductor(caplog: pytest.LogCaptureFixture) -> None:
    a, b = torch.randn(32, 32).double(), torch.randn(32, 32).double()
    compiled = torch.compile(multiply, options=make_options("ATEN"), fullgraph=True)
    with caplog.at_level(logging.WARNING, logger="torch._inductor"):
        torch.testing.assert_close(compiled(a, b), multiply(a, b))
    assert "fp64" in caplog.text or "float64" in caplog.text
