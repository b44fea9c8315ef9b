"""Tilewright's products among the candidates of Inductor, the compiler behind `torch.compile`."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import TensorError, UnsupportedError
from tilewright.ops.gemm.functions import matmul
from tilewright.torch.emulation import find_device


def make_inductor_options() -> dict[str, Any]:
    """Options for `torch.compile`: Inductor times its own products of matrices and Tilewright's, and uses the fastest.

        compiled = torch.compile(model, options=twt.make_inductor_options())

    Inductor asks for candidates only for products of two matrices: `torch.mm`, and `torch.nn.functional.linear` without
    bias.
    """
    try:
        from torch._inductor import config  # noqa: PLC0415  (takes a second)
        from torch._inductor.kernel.mm import lazy_register_extern_choice  # noqa: PLC0415
    except ImportError as error:
        raise _make_version_error() from error
    if not hasattr(config, "external_matmul"):
        raise _make_version_error()
    # Compiled code that Inductor loads from its cache calls the candidate by name, before it would register it.
    lazy_register_extern_choice(tilewright_mm)
    return {"max_autotune_gemm": True, "external_matmul": [tilewright_mm]}


def _make_version_error() -> UnsupportedError:
    return UnsupportedError(
        f"Inductor of torch {torch.__version__} takes no candidates for products: torch 2.13 does, by its option "
        "external_matmul"
    )


def tilewright_mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """The product of two matrices. Its name is that of the candidate in Inductor's log and code."""
    try:
        matmul(a, b, out=out, device=find_device(a, "tilewright_mm"))
    except (UnsupportedError, TensorError) as error:
        # Inductor logs this error and goes on with its other candidates; others would stop it.
        raise NotImplementedError(str(error)) from error
    return out
