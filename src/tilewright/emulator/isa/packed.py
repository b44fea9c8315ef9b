"""Operations on two numbers in one register or register pair, and dot products."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.emulator.isa.operation import Operation as Op
from tilewright.emulator.isa.vector import SATURATED_HALF, VECTOR_FLOAT, VECTOR_HALF

_SAME_NAME = (
    "add_f16", "mul_f16", "fma_f16", "min_f16", "max_f16", "min_num_f16", "max_num_f16", "minimum_f16", "maximum_f16",
    "minimum3_f16", "maximum3_f16",
    "add_u16", "sub_u16", "add_i16", "sub_i16", "mul_lo_u16", "mad_u16", "mad_i16",
    "min_u16", "max_u16", "min_i16", "max_i16", "lshlrev_b16", "lshrrev_b16", "ashrrev_i16",
)  # fmt: skip


def _build_packed(table: Mapping[str, Op]) -> dict[str, Op]:
    return {f"v_pk_{name}": table[f"v_{name}"] for name in _SAME_NAME if f"v_{name}" in table}


# v_pk_…: the operation of each element. Elements are 16 bits of a register, or the registers of a pair.
PACKED: dict[str, Op] = {
    **_build_packed(VECTOR_HALF),
    "v_pk_fmac_f16": VECTOR_HALF["v_fmac_f16"],
    **{f"v_pk_{name}_f32": VECTOR_FLOAT[f"v_{name}_f32"] for name in ("add", "mul", "fma")},
    "v_pk_mov_b32": Op("u32", ("u32",), "a"),
}
SATURATED_PACKED: dict[str, Op] = _build_packed(SATURATED_HALF)


def _build_dots() -> dict[str, Op]:
    """Build dot products of the 16, 8 or 4-bit elements of a and b, plus c."""
    table = {
        f"v_dot2_{result}_{element}": Op(result, ("u32", "u32", result), f"dot2_{result}_{element}(a, b, c)")
        for result, element in (("f32", "f16"), ("f32", "bf16"), ("i32", "i16"), ("u32", "u16"))
    }
    table |= {
        f"v_dot4_f32_{first}_{second}": Op("f32", ("u32", "u32", "f32"), f"dot4_f32_{first}_{second}(a, b, c)")
        for first in ("fp8", "bf8")
        for second in ("fp8", "bf8")
    }
    table |= {
        f"v_dot{8 if size == 4 else 4}_{sign}32_{sign}{size}": Op(
            f"{sign}32", ("u32", "u32", f"{sign}32"), f"dot_{sign}{size}(a, b, c)"
        )
        for sign in ("i", "u")
        for size in (8, 4)
    }
    for name, operation in tuple(table.items()):
        if name in ("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2_i32_i16", "v_dot4_i32_i8", "v_dot8_i32_i4"):
            kind = operation.result
            accumulating = Op(kind, ("u32", "u32", f"old {kind}"), operation.expression)
            start, _, rest = name.partition("_")[2].partition("_")
            table[f"v_{start}c_{rest}"] = accumulating
            table[f"v_{start}acc_{rest}"] = accumulating
    return table


DOT: dict[str, Op] = _build_dots()
# Of c, neg_lo changes the sign, and neg_hi clears it before: LLVM makes them from fneg and fabs.
SMALL_DOTS = frozenset(name for name in DOT if name.startswith("v_dot4_f32_"))


def find_signed_dot(name: str, first: bool, second: bool) -> Op | None:
    """Return v_dot4_i32_iu8 or v_dot8_i32_iu4, whose modifier neg_lo selects which of a and b are signed."""
    size = {"v_dot4_i32_iu8": 8, "v_dot8_i32_iu4": 4}.get(name)
    if size is None:
        return None
    kinds = ("i" if first else "u") + ("i" if second else "u")
    return Op("i32", ("u32", "u32", "i32"), f"dot_{kinds}{size}(a, b, c)")
