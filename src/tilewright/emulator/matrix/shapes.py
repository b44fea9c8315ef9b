"""The matrix instructions by name, with their shapes.

The lists are those of LLVM 22's assembler (a test compares). The shape of a name differs between GPUs: without a block
count in the name, `32x32x4bf16` is one block on CDNA 1 and 2, and two blocks from CDNA 3 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

# Bits of an element in registers. f8f6f4: the modifiers cbsz and blgp choose, at most 8.
BITS: Mapping[str, int] = {
    "f64": 64, "f32": 32, "xf32": 32, "i32": 32, "f16": 16, "bf16": 16,
    "fp8": 8, "bf8": 8, "i8": 8, "iu8": 8, "f8f6f4": 8, "fp6": 6, "bf6": 6, "fp4": 4, "iu4": 4,
}  # fmt: skip

CDNA = ("cdna1", "cdna2", "cdna3", "cdna4")

# Formats that cbsz (for A) and blgp (for B) select in f8f6f4 instructions: E4M3, E5M2, E2M3, E3M2, E2M1.
# AMD's blog "Matrix Core Programming on CDNA 3 and CDNA 4", section 5.4; also CK's amd_xdlops.hpp.
F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """D = A · B + C for `blocks` independent products of an m × k by a k × n matrix."""

    result: str  # element type of C and D
    m: int
    n: int
    k: int
    a: str  # element type of A
    b: str
    blocks: int = 1
    layout: str = "mfma"  # layout of matrices in registers: mfma, f8f6f4, wmma11 or wmma12
    broadcasts: bool = False  # cbsz and abid broadcast blocks of A
    patterns: bool = False  # blgp chooses among lanes of B
    negates: bool = False  # neg negates A, B and C
    scaled: bool = False  # two more operands hold scales
    sparse: bool = False  # A has two of each four neighbours along k, and an operand has their places

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.blocks

    @property
    def lanes(self) -> int:
        """Lanes of a wave that the instruction requires."""
        return 32 if self.layout in ("wmma11", "wmma12") else 64

    def count_along_k(self, operand: str) -> int:
        """Return the number of elements of a row of "a" or a column of "b"."""
        return self.k // 2 if self.sparse and operand == "a" else self.k

    def count_elements(self, operand: str) -> int:
        """Return the number of elements of "a", "b" or "d" that a lane holds."""
        if operand == "d":
            return self.m * self.n * self.blocks // self.lanes
        outer = self.m if operand == "a" else self.n
        # RDNA 3 needs A and B twice, in both halves of the wave.
        copies = 2 if self.layout == "wmma11" else 1
        return outer * self.count_along_k(operand) * self.blocks * copies // self.lanes

    def count_registers(self, operand: str) -> int:
        """Return the number of registers of "a", "b" or "d" (also C)."""
        kind = {"a": self.a, "b": self.b, "d": self.result}[operand]
        if operand == "d" and self.layout == "wmma11":
            return self.count_elements("d")  # 16-bit results fill half of each register
        return self.count_elements(operand) * BITS[kind] // 32

    def replace_formats(self, a: str, b: str) -> MatrixShape:
        """Return an f8f6f4 shape with the formats that its modifiers select."""
        return replace(self, a=a, b=b)


@dataclass(frozen=True, slots=True)
class _MfmaRow:
    """MFMA of one element type: sizes are "m x n x k" or "m x n x k _ blocks b"."""

    families: tuple[str, ...]
    result: str
    kind: str
    sizes: tuple[str, ...]


_MFMA = (
    _MfmaRow(CDNA, "f32", "f32", ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4")),
    _MfmaRow(CDNA, "f32", "f16", ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x8", "16x16x16")),
    _MfmaRow(CDNA[:2], "f32", "bf16", ("32x32x2_2b", "16x16x2_4b", "4x4x2_16b", "32x32x4", "16x16x8")),
    _MfmaRow(CDNA[1:], "f32", "bf16_1k", ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x8", "16x16x16")),
    _MfmaRow(CDNA, "i32", "i8", ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b")),
    _MfmaRow(CDNA[:2], "i32", "i8", ("32x32x8", "16x16x16")),
    _MfmaRow(CDNA[2:], "i32", "i8", ("32x32x16", "16x16x32")),
    _MfmaRow(CDNA[1:], "f64", "f64", ("16x16x4", "4x4x4_4b")),
    _MfmaRow(CDNA[2:3], "f32", "xf32", ("32x32x4", "16x16x8")),
    *(_MfmaRow(CDNA[2:], "f32", f"{a}_{b}", ("32x32x16", "16x16x32")) for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
    _MfmaRow(CDNA[3:], "f32", "f16", ("32x32x16", "16x16x32")),
    _MfmaRow(CDNA[3:], "f32", "bf16", ("32x32x16", "16x16x32")),
    _MfmaRow(CDNA[3:], "i32", "i8", ("32x32x32", "16x16x64")),
    _MfmaRow(CDNA[3:], "f32", "f8f6f4", ("32x32x64", "16x16x128")),
)


def _parse_size(text: str) -> tuple[int, int, int, int]:
    sizes, _, blocks = text.partition("_")
    m, n, k = (int(part) for part in sizes.split("x"))
    return m, n, k, int(blocks.rstrip("b") or 1)


def _make_mfma_shape(row: _MfmaRow, size: str) -> MatrixShape:
    m, n, k, blocks = _parse_size(size)
    kind = row.kind.removesuffix("_1k")
    a, _, b = kind.partition("_")
    # AMD's matrix instruction calculator: every MFMA of CDNA 1 and 2 but the f64 ones has blgp, and those of several
    # blocks have cbsz and abid. Whether later instructions have blgp is not known.
    old = row.families[0] in CDNA[:2] and row.result != "f64"
    return MatrixShape(
        row.result, m, n, k, a, b or a, blocks, "f8f6f4" if kind == "f8f6f4" else "mfma",
        broadcasts=old and blocks > 1, patterns=old, negates=row.result == "f64",
    )  # fmt: skip


def _list_mfma_names(row: _MfmaRow, size: str, family: str) -> Iterator[str]:
    """List all spellings of an instruction. The disassembler prints the first."""
    plain = size.partition("_")[0]
    start = f"v_mfma_{row.result}_"
    if family in CDNA[:2]:
        yield f"{start}{plain}{row.kind}"
        return
    kind = row.kind.removesuffix("_1k")
    yield f"{start}{size}_{kind}"
    if "_" not in kind and kind != "f8f6f4":
        yield f"{start}{plain}{kind}"
    if row.kind.endswith("_1k"):
        yield f"{start}{plain}{row.kind}"


def _list_mfma(family: str) -> Iterator[tuple[str, MatrixShape]]:
    for row in _MFMA:
        if family not in row.families:
            continue
        for size in row.sizes:
            shape = _make_mfma_shape(row, size)
            for name in _list_mfma_names(row, size, family):
                yield name, shape
            if row.kind == "f8f6f4":
                yield f"v_mfma_scale_f32_{size}_f8f6f4", replace(shape, scaled=True)


def _list_wmma(layout: str) -> Iterator[tuple[str, MatrixShape]]:
    types = [("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"), ("i32", "iu8"), ("i32", "iu4")]
    if layout == "wmma12":
        types += [("f32", f"{a}_{b}") for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
        yield "v_wmma_i32_16x16x32_iu4", MatrixShape("i32", 16, 16, 32, "iu4", "iu4", layout=layout)
    for result, kind in types:
        a, _, b = kind.partition("_")
        yield f"v_wmma_{result}_16x16x16_{kind}", MatrixShape(result, 16, 16, 16, a, b or a, layout=layout)


@cache
def list_shapes(family: str) -> Mapping[str, MatrixShape]:
    """Return the supported matrix instructions of a GPU family. For sparse ones, see sparse.py."""
    if family in CDNA:
        return dict(_list_mfma(family))
    return dict(_list_wmma("wmma11" if family == "rdna3" else "wmma12"))
