"""Operations on many elements in consecutive registers: an operation of the table for each element.

Names, operands and the order of elements are those of AMD's CDNA4 ISA manual.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.emulator.isa.operation import Operation as Op
from tilewright.emulator.isa.scaled import FRACTION_BITS, TO_SINGLE

_SIX_BITS = ("fp6", "bf6")


@dataclass(frozen=True, slots=True)
class WideSource:
    """Where the elements of a source are: an element has `width` bits, and begins `step` bits after the one before.

    With a step of 0, a source of 32 bits is the same for all elements; if it is `random`, the next element uses the
    next random number.
    """

    step: int = 0
    width: int = 32
    random: bool = False

    def count_registers(self, elements: int) -> int:
        return -(-(self.step * (elements - 1) + self.width) // 32)


@dataclass(frozen=True, slots=True)
class WideOperation:
    """An operation for each of `count` elements. `width` is how many bits the result has for each."""

    element: Op
    sources: tuple[WideSource, ...]
    count: int
    width: int

    @property
    def registers(self) -> int:
        """The registers of the result."""
        return self.count * self.width // 32


_SAME, _RANDOM = WideSource(), WideSource(random=True)
_SINGLES = WideSource(32)


def _build_encodings(kind: str) -> dict[str, WideOperation]:
    """Build conversions to 6-bit floats."""
    put, random = f"{kind}_ocp_scaled", f"{kind}_ocp_scaled_random"
    # Numbers of the two sources take turns.
    pair = Op("u16", ("f32", "f32", "f32"), f"u16({put}(a, c)) | (u16({put}(b, c)) << 6)")
    single = Op("u8", ("f32", "u32", "f32"), f"{random}(a, b, c, 23)")
    table = {
        f"v_cvt_scalef32_2xpk16_{kind}_f32": WideOperation(pair, (_SINGLES, _SINGLES, _SAME), 16, 12),
        f"v_cvt_scalef32_sr_pk32_{kind}_f32": WideOperation(single, (_SINGLES, _RANDOM, _SAME), 32, 6),
    }
    halves = WideSource(16, 16)
    for source, bits in FRACTION_BITS.items():
        number = TO_SINGLE[source].format("a")
        near = Op("u8", ("u16", "f32"), f"{put}({number}, b)")
        cut = Op("u8", ("u16", "u32", "f32"), f"{random}({number}, b, c, {bits})")
        table[f"v_cvt_scalef32_pk32_{kind}_{source}"] = WideOperation(near, (halves, _SAME), 32, 6)
        table[f"v_cvt_scalef32_sr_pk32_{kind}_{source}"] = WideOperation(cut, (halves, _RANDOM, _SAME), 32, 6)
    return table


def _build_decodings(kind: str) -> dict[str, WideOperation]:
    number = f"f64_of_{kind}_ocp(a & 63, b)"
    results = {
        "f32": ("u32", f"bits32(f32({number}))"),
        "f16": ("u16", f"bits16(f16({number}))"),
        "bf16": ("u16", f"bf16_of_f32(f32({number}))"),
    }
    return {
        f"v_cvt_scalef32_pk32_{result}_{kind}": WideOperation(
            Op(bits, ("u8", "f32"), expression), (WideSource(6, 6), _SAME), 32, int(bits[1:])
        )
        for result, (bits, expression) in results.items()
    }


WIDE: dict[str, WideOperation] = {
    **{name: wide for kind in _SIX_BITS for name, wide in (_build_encodings(kind) | _build_decodings(kind)).items()},
    # Four bytes of the first source for each sum, one byte further on.
    "v_mqsad_u32_u8": WideOperation(
        Op("u32", ("u32", "u32", "u32"), "msad_u8(a, b, c)"), (WideSource(8), _SAME, _SINGLES), 4, 32
    ),
}
