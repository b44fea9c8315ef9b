"""The operators `tilewright::grouped_mm` and `tilewright::scaled_grouped_mm`."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.grouped_gemm.functions import grouped_matmul
from tilewright.torch.emulation import find_device


def grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The products of groups, with the arguments of `torch._grouped_mm`: a and b have two or three dimensions each.

    `offs` has the end of each group in a dimension that a or b have for all groups together. It is read on the device.
    Elements of the result behind the last end are 0. Both operands have gradients. `bias` must be None.
    """
    if bias is not None:
        raise InvalidValueError("grouped_mm has no bias: add it with torch")
    result: torch.Tensor = torch.ops.tilewright.grouped_mm(a, b, offs, a.dtype if out_dtype is None else out_dtype)
    return result


def _find_shape(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None) -> tuple[int, ...]:
    if a.dim() not in (2, 3) or b.dim() not in (2, 3) or a.shape[-1] != b.shape[-2]:
        raise TensorError(
            f"grouped_mm needs a of (groups,) m, k and b of (groups,) k, n, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if (offs is None) != (a.dim() == b.dim() == 3):
        raise TensorError("grouped_mm needs offs, unless a and b have three dimensions")
    if a.dim() == b.dim() == 2 and offs is not None:
        return (offs.shape[0], a.shape[0], b.shape[1])
    return (a.shape[0], a.shape[1], b.shape[2]) if offs is None else (a.shape[-2], b.shape[-1])


@torch.library.custom_op("tilewright::grouped_mm", mutates_args=())
def _grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, out_dtype: torch.dtype) -> torch.Tensor:
    device = find_device(a, "tilewright::grouped_mm")
    _find_shape(a, b, offs)
    result: torch.Tensor = grouped_matmul(a, b, offs, out_dtype=out_dtype, device=device)
    return result


@_grouped_mm.register_fake
def _(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, out_dtype: torch.dtype) -> torch.Tensor:
    return a.new_empty(_find_shape(a, b, offs), dtype=out_dtype)


def _save_operands(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:3])


def _differentiate(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Both gradients are products of the same groups, of another form."""
    a, b, offs = context.saved_tensors
    needs_a, needs_b = context.needs_input_grad[:2]
    multiply = torch.ops.tilewright.grouped_mm
    of_c = gradient.to(a.dtype)
    of_a = multiply(of_c, b.transpose(-1, -2), offs, a.dtype) if needs_a else None
    of_b = multiply(a.transpose(-1, -2), of_c, offs, b.dtype) if needs_b else None
    return of_a, of_b, None, None


_grouped_mm.register_autograd(_differentiate, setup_context=_save_operands)


def scaled_grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,  # noqa: ARG001  (a permission: sums are in fp32 in any case)
) -> torch.Tensor:
    """The products of groups of 8-bit floats with scales, with the arguments of `torch._scaled_grouped_mm`.

    `scale_a` has a factor for each row of `a`, and `scale_b` one for each column of each `b[group]`, (groups, n): those
    of rows that groups divide are (m,), the others (groups, m). `b` may have three dimensions with an `a` of two or
    three; if terms are divided, both have two, and scales are (groups · m,) and (groups · n,). Columns cannot be
    divided. Without `out_dtype`, the result is bfloat16. `bias` and `scale_result` must be None. There is no gradient.
    """
    if bias is not None or scale_result is not None:
        raise InvalidValueError("scaled_grouped_mm has neither bias nor scale_result: add and multiply with torch")
    dtype = torch.bfloat16 if out_dtype is None else out_dtype
    result: torch.Tensor = torch.ops.tilewright.scaled_grouped_mm(a, b, scale_a, scale_b, offs, dtype)
    return result


@torch.library.custom_op("tilewright::scaled_grouped_mm", mutates_args=())
def _scaled_grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    offs: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    device = find_device(a, "tilewright::scaled_grouped_mm")
    _find_shape(a, b, offs)
    result: torch.Tensor = grouped_matmul(
        a, b, offs, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype, device=device
    )
    return result


@_scaled_grouped_mm.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,  # noqa: ARG001
    scale_b: torch.Tensor,  # noqa: ARG001
    offs: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    return a.new_empty(_find_shape(a, b, offs), dtype=out_dtype)
