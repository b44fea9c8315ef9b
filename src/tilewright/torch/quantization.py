"""The operator `tilewright::quantize_rows`: activations in 8 bits, with a scale for each row."""

from __future__ import annotations

import torch

from tilewright.base.errors import TensorError
from tilewright.ops.norm.functions import smooth_quantize
from tilewright.torch.emulation import find_device

TYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def quantize_rows(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """`x` (rows, columns) of fp16 or bf16 in an 8-bit type, and the float32 scale of each row, (rows,).

    A row is divided by its scale, its largest magnitude over the largest value of the type. `dtype` must be the GPU's:
    `torch.float8_e4m3fnuz` on gfx942, `torch.float8_e4m3fn` on gfx950. Rows of zeros stay zeros, with the scale 0.
    There is no gradient.
    """
    values, scales = torch.ops.tilewright.quantize_rows(x, dtype)
    return values, scales


def _check(x: torch.Tensor, dtype: torch.dtype) -> None:
    if x.dim() != 2 or dtype not in TYPES:
        known = " or ".join(map(str, TYPES))
        raise TensorError(f"quantize_rows needs x (rows, columns) and {known}, got {tuple(x.shape)} and {dtype}")


@torch.library.custom_op("tilewright::quantize_rows", mutates_args=())
def _quantize_rows(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    device = find_device(x, "tilewright::quantize_rows")
    _check(x, dtype)
    values, scales = smooth_quantize(x, x.new_ones(x.shape[1], dtype=torch.float32), quantize="fp8", device=device)
    if values.dtype != dtype:
        raise TensorError(f"quantize_rows got {dtype}, but the GPU has {values.dtype}: convert the weights")
    # CK Tile's kernel divides by the scale, which is 0 for a row of zeros; 0 is the same in all encodings.
    return values.view(torch.uint8).masked_fill(scales[:, None] == 0, 0).view(dtype), scales


@_quantize_rows.register_fake
def _(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    _check(x, dtype)
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[:1], dtype=torch.float32)
