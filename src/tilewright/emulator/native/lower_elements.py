"""How records name elements of memory, and atomic operations."""

from __future__ import annotations

from tilewright.emulator.access.atomics import OPERATIONS, AtomicOperation
from tilewright.emulator.access.elements import Element
from tilewright.emulator.native import layout

# In the order of the enumerations in atomics.h.
_ATOMICS = (
    "add", "sub", "rsub", "min", "max", "and", "or", "xor", "inc", "dec", "sub_clamp", "cond_sub", "swap", "cmpswap",
    "cmpst", "mskor", "pk_add", "add_flushed", "wrap", "condxchg32",
)  # fmt: skip
_ATOMIC_TYPES = ("u32", "u64", "i32", "i64", "f32", "f64", "f16", "bf16")


def make_element_flags(element: Element) -> int:
    """Return the flags of a load or store of an element."""
    half = {"": 0, "low": layout.D16, "high": layout.D16_HIGH}[element.half]
    return half | (layout.SIGNED if element.signed else 0)


def encode_atomic(operation: AtomicOperation) -> int:
    """Encode operation and type as in atomics.h."""
    name, kind = next(key for key, value in OPERATIONS.items() if value == operation)
    letter = kind if name == "pk_add" else {"b": "u"}.get(kind[0], kind[0]) + kind[1:]
    return _ATOMICS.index(name) | _ATOMIC_TYPES.index(letter) << 8
