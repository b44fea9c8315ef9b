"""Maps dtypes of other libraries to names of `ARRAY_TYPES`.

The type "fp8" of a problem is an array of "fp8_fnuz" or "fp8_ocp", depending on the GPU.
"""

from __future__ import annotations

import sys
from typing import Any

from tilewright.arch.dtypes import ARRAY_TYPES, find_dtype
from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError

_NAMES = {theirs: ours for ours, theirs in ARRAY_TYPES.items()}
# DLDataTypeCode and bits, from dlpack.h of DLPack 1.1.
_DLPACK = {
    (2, 64): "fp64",
    (2, 32): "fp32",
    (2, 16): "fp16",
    (4, 16): "bf16",
    (10, 8): "fp8_ocp",
    (11, 8): "fp8_fnuz",
    (12, 8): "bf8_ocp",
    (13, 8): "bf8_fnuz",
    (0, 8): "int8",
    (1, 8): "uint8",
    (0, 32): "int32",
}
# Bytes of an element.
SIZES = {name: find_dtype(name.partition("_")[0]).storage_bytes for name in ARRAY_TYPES}


def find_array_type(name: str, arch: Arch) -> str:
    """The array type for a problem's type on a GPU."""
    stored = arch.resolve_dtype(name)
    if stored not in ARRAY_TYPES:
        raise TensorError(f"{name} packs two values per byte; NumPy and torch have no such dtype")
    return stored


def parse_dtype_name(name: str) -> str:
    """The type with this name in NumPy or torch."""
    found = _NAMES.get(name.removeprefix("torch."))
    if found is None:
        raise TensorError(f"kernels do not support arrays of {name}. Known: {', '.join(_NAMES)}.")
    return found


def parse_dlpack_type(code: int, bits: int, lanes: int) -> str:
    """The type with this code in DLPack."""
    found = _DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None:
        known = ", ".join(f"{c}/{b}" for c, b in _DLPACK)
        raise TensorError(f"DLPack tensors of type {code}/{bits} with {lanes} lanes are not supported. Known: {known}.")
    return found


def get_torch() -> Any:
    """The module torch, which is loaded if a torch tensor was passed. It is never imported here."""
    return sys.modules["torch"]


def to_torch_dtype(name: str) -> Any:
    """The torch dtype of a type."""
    return getattr(get_torch(), ARRAY_TYPES[name])
