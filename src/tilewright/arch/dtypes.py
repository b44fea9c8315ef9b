"""Data types: their sizes, their C++ names and the accumulator of each pair."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.spec import Triple
from tilewright.base.errors import InvalidValueError, UnknownValueError

MAJOR_NAMES = {"r": "RowMajor", "c": "ColumnMajor"}


def major_name(letter: str) -> str:
    """The C++ name of one layout letter."""
    found = MAJOR_NAMES.get(letter)
    if found is None:
        raise UnknownValueError("layout letter", letter, MAJOR_NAMES)
    return found


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `bits` is the size of one value, also for types that are stored packed."""

    name: str
    bits: int
    cpp: str
    doc: str

    @property
    def packed(self) -> int:
        """Number of values in one addressable element (2 for 4-bit types)."""
        return max(1, 8 // self.bits)

    @property
    def storage_bytes(self) -> int:
        """Bytes of one addressable element: its `sizeof` in C++."""
        return max(1, self.bits // 8)


_ALL = (
    DType("fp64", 64, "double", "IEEE binary64"),
    DType("fp32", 32, "float", "IEEE binary32"),
    DType("fp16", 16, "ck_tile::fp16_t", "IEEE binary16"),
    DType("bf16", 16, "ck_tile::bf16_t", "bfloat16: 8 exponent bits, 7 mantissa bits"),
    DType("fp8", 8, "ck_tile::fp8_t", "8-bit float, 4 exponent bits (E4M3)"),
    DType("bf8", 8, "ck_tile::bf8_t", "8-bit float, 5 exponent bits (E5M2)"),
    DType("int8", 8, "ck_tile::int8_t", "signed 8-bit integer"),
    DType("uint8", 8, "uint8_t", "unsigned 8-bit integer"),
    DType("int32", 32, "ck_tile::int32_t", "signed 32-bit integer"),
    DType("int4", 4, "ck_tile::pk_int4_t", "signed 4-bit integer, two per byte"),
    DType("pk_fp4", 4, "ck_tile::pk_fp4_t", "4-bit float (E2M1), two per byte"),
)

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}

# Element types of arrays, with their name in NumPy (with ml_dtypes) and torch. 8-bit floats are listed in both
# encodings; `Arch.resolve_dtype` gives that of a GPU. 4-bit types are missing: arrays cannot have two values per byte.
ARRAY_TYPES: dict[str, str] = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_ocp": "float8_e4m3fn",
    "fp8_fnuz": "float8_e4m3fnuz",
    "bf8_ocp": "float8_e5m2",
    "bf8_fnuz": "float8_e5m2fnuz",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
}

# The accumulator type of CK Tile's matrix instructions for each pair of input types (A, B).
ACCUMULATORS: dict[tuple[str, str], str] = {
    ("fp32", "fp32"): "fp32",
    ("fp16", "fp16"): "fp32",
    ("bf16", "bf16"): "fp32",
    ("fp8", "fp8"): "fp32",
    ("fp8", "bf8"): "fp32",
    ("bf8", "fp8"): "fp32",
    ("bf8", "bf8"): "fp32",
    ("int8", "int8"): "int32",
    ("pk_fp4", "pk_fp4"): "fp32",
}
# By name, as in GPU files: "fp16_fp16_fp32".
TRIPLES = {str(triple): triple for triple in (Triple(a, b, acc) for (a, b), acc in ACCUMULATORS.items())}


def find_dtype(name: str) -> DType:
    """The data type with this name; `UnknownValueError` lists all names."""
    found = DTYPES.get(name)
    if found is None:
        raise UnknownValueError("dtype", name, DTYPES)
    return found


def find_accumulator(a: str, b: str) -> str:
    """The accumulator type of a pair of input types; an error if no matrix instruction supports them."""
    find_dtype(a), find_dtype(b)
    found = ACCUMULATORS.get((a, b))
    if found is None:
        pairs = ", ".join(f"{x}×{y}" for x, y in ACCUMULATORS)
        raise InvalidValueError(f"no matrix instruction multiplies {a} by {b}. Known pairs: {pairs}.")
    return found
