"""The operator `tilewright::scaled_mm`."""

from __future__ import annotations

import torch

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.gemm_quant.config import GROUP_K
from tilewright.ops.gemm_quant.functions import scaled_matmul
from tilewright.torch.emulation import find_device

_TYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)


def scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,  # noqa: ARG001  (a permission: sums are in fp32 in any case)
) -> torch.Tensor:
    """`(a * scale_a) @ (b * scale_b)` for 8-bit floats a (m, k) and b (k, n), with the arguments of `torch._scaled_mm`.

    Scales are one number each, or of the shapes (m, 1) and (1, n). If `scale_a` is None, `scale_b` has the shape
    (k / 128, n) or (k / 128, n / 128), rounded up: a scale for 128 elements along k of 1 or 128 columns. `scale_a` of
    the shape (m, k / 128) has one for 128 elements along k of each row; then `scale_b` is None or (k / 128, n / 128).
    Their strides may be those that `torch._scaled_mm` requires: other ones than of K contiguous are copied.
    `out_dtype` must be given: torch's default is the type of `a`, and kernels have no 8-bit results. `bias` and
    `scale_result` must be None.
    """
    if bias is not None or scale_result is not None:
        raise InvalidValueError("scaled_mm has neither bias nor scale_result: add and multiply with torch")
    if out_dtype is None:
        raise InvalidValueError(
            f"scaled_mm without out_dtype returns {a.dtype} in torch, and kernels have no 8-bit results: pass "
            "out_dtype=torch.bfloat16, float16 or float32"
        )
    result: torch.Tensor = torch.ops.tilewright.scaled_mm(a, b, scale_a, scale_b, out_dtype)
    return result


def _check(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor | None, scale_b: torch.Tensor | None) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise TensorError(f"scaled_mm needs a (m, k) and b (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype not in _TYPES or b.dtype not in _TYPES:
        raise TensorError(f"scaled_mm needs a and b of 8-bit floats, got {a.dtype} and {b.dtype}")
    of_groups = (1, -(-b.shape[1] // GROUP_K))  # scales of B for one group along k
    if scale_a is None or scale_b is None or scale_a.numel() > max(a.shape[0], 1) or scale_b.shape == of_groups:
        return  # the shapes of scales decide about the kind of groups, which `scaled_matmul` checks
    for name, scale, lines in (("scale_a", scale_a, a.shape[0]), ("scale_b", scale_b, b.shape[1])):
        if scale.dtype != torch.float32 or scale.numel() not in (1, lines):
            raise TensorError(f"{name} is {scale.dtype} of shape {tuple(scale.shape)}, must be float32: 1 or {lines}")


@torch.library.custom_op("tilewright::scaled_mm", mutates_args=())
def _scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    device = find_device(a, "tilewright::scaled_mm")
    _check(a, b, scale_a, scale_b)
    result: torch.Tensor = scaled_matmul(a, b, scale_a, scale_b, out_dtype=out_dtype, device=device)
    return result


@_scaled_mm.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    _check(a, b, scale_a, scale_b)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)
