"""What the dtypes of other libraries' tensors mean, by the names of `ARRAY_TYPES`.

A problem says "fp8"; whether that is an array of "fp8_fnuz" or "fp8_ocp" depends on the GPU.
"""

from __future__ import annotations

import sys
from typing import Any

from tilewright.arch.dtypes import ARRAY_TYPES, dtype
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
SIZES = {name: dtype(name.partition("_")[0]).storage_bytes for name in ARRAY_TYPES}


def stored_as(name: str, arch: Arch) -> str:
    """The type that arrays must have for a problem's type on a GPU."""
    stored = arch.stored(name)
    if stored not in ARRAY_TYPES:
        raise TensorError(f"tensors of {name} cannot be passed: two of its values share a byte, which no array has")
    return stored


def named(name: str) -> str:
    """The type that NumPy or torch calls `name`."""
    found = _NAMES.get(name.removeprefix("torch."))
    if found is None:
        raise TensorError(f"an array of {name} is of no type that kernels take. Known: {', '.join(_NAMES)}.")
    return found


def of_dlpack(code: int, bits: int, lanes: int) -> str:
    """The type that DLPack calls so."""
    found = _DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None:
        known = ", ".join(f"{c}/{b}" for c, b in _DLPACK)
        raise TensorError(f"a DLPack tensor of type {code}/{bits} with {lanes} lanes is not taken. Known: {known}.")
    return found


def torch_module() -> Any:
    """torch, which is loaded where a tensor of it was given. It is never imported from here."""
    return sys.modules["torch"]


def torch_dtype(name: str) -> Any:
    """torch's dtype of that type."""
    return getattr(torch_module(), ARRAY_TYPES[name])
