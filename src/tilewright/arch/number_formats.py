"""The spacing of a data type's values, and the NumPy type that holds them.

Imports NumPy: import this module only where arrays are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.dtypes import ARRAY_TYPES
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, choose

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format: bits of the significand (with the hidden one), and its smallest exponent."""

    precision: int
    least_exponent: int  # of the smallest normal value, 2**least_exponent

    @property
    def smallest_normal(self) -> float:
        return float(2.0**self.least_exponent)

    @property
    def smallest(self) -> float:
        """The smallest positive value, also the spacing of subnormal values."""
        return float(2.0 ** (self.least_exponent - self.precision + 1))

    @property
    def integers(self) -> int:
        """All integers up to this one are values of the format."""
        return int(2**self.precision)


# By names of `ARRAY_TYPES`. OCP's 8-bit floats have a bias of 7 and 15; the older ones, without infinities and with one
# NaN (fnuz), have 8 and 16.
FORMATS = {
    "fp64": FloatFormat(53, -1022),
    "fp32": FloatFormat(24, -126),
    "fp16": FloatFormat(11, -14),
    "bf16": FloatFormat(8, -126),
    "fp8_ocp": FloatFormat(4, -6),
    "fp8_fnuz": FloatFormat(4, -7),
    "bf8_ocp": FloatFormat(3, -14),
    "bf8_fnuz": FloatFormat(3, -15),
}
_EXPONENT_BITS = np.int64(0x7FF << 52)  # of a float64
INTEGERS = {"int8": 8, "uint8": 8, "int32": 32}


def is_integer(name: str) -> bool:
    """Whether a data type is an integer type."""
    return name in INTEGERS


def find_format(name: str, arch: Arch) -> FloatFormat:
    """The format of a floating-point type on a GPU."""
    return FORMATS[choose("floating-point type", arch.resolve_dtype(name), FORMATS)]


def to_numpy_dtype(name: str, arch: Arch) -> np.dtype[Any]:
    """The NumPy or ml_dtypes type with this GPU's encoding of a data type."""
    return find_array_dtype(arch.resolve_dtype(name))


def find_array_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type for a name of `ARRAY_TYPES`. Types that NumPy lacks come from ml_dtypes."""
    if name not in ARRAY_TYPES:
        known = ", ".join(ARRAY_TYPES)
        raise InvalidValueError(f"NumPy has no type for {name}, which packs two values per byte. Known: {known}.")
    called = ARRAY_TYPES[name]
    if hasattr(np, called):
        return np.dtype(called)
    import ml_dtypes  # noqa: PLC0415  (only for such types)

    held: np.dtype[Any] = np.dtype(getattr(ml_dtypes, called))
    return held


def find_largest(name: str, arch: Arch) -> float:
    """The largest finite value of a type on a GPU: 448 for an fp8 in OCP's encoding, 240 in that of CDNA 3."""
    import ml_dtypes  # noqa: PLC0415  (knows the limits of 8-bit floats, and NumPy's)

    kind = to_numpy_dtype(name, arch)
    return float(np.iinfo(kind).max if is_integer(name) else ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]


def compute_spacing(values: NDArray[Any], name: str, arch: Arch) -> Floats:
    """One ulp of each value: the distance to the next larger magnitude of its type. 1 for integers."""
    wide = np.asarray(values, dtype=np.float64)
    if is_integer(name):
        return np.ones_like(wide)
    kind = find_format(name, arch)
    # A float64 without its sign and fraction bits is the power of two below its magnitude: far faster than frexp and
    # ldexp. In place, because new memory takes longer than the operation.
    power = (np.atleast_1d(wide).view(np.int64) & _EXPONENT_BITS).view(np.float64)
    np.maximum(power, 2.0**kind.least_exponent, out=power)
    power *= 2.0 ** (1 - kind.precision)
    return power.reshape(wide.shape)


def is_representable(values: NDArray[Any], name: str, arch: Arch) -> NDArray[np.bool_]:
    """Which values the type represents exactly."""
    wide = np.asarray(values, dtype=np.float64)
    steps = wide / compute_spacing(wide, name, arch)
    exact: NDArray[np.bool_] = np.asarray(steps == np.rint(steps))
    return exact
