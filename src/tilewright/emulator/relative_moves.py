"""Moves between registers by number: M0 is added to register numbers of v_movrel…, v_swaprel and s_movrel….

The index is unsigned. Those that end in _2 and v_swaprel have one for the source and one for the destination. An index
beyond the registers is a fault, although a GPU ignores such a move or reads the first register: no compiler means that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.hardware import generation
from tilewright.emulator.indexed_registers import RegisterIndexing
from tilewright.emulator.instruction import Instruction, Operand

PAIR_INDEX = "an odd index of a pair of registers"


@dataclass(frozen=True, slots=True)
class IndexBits:
    """The bits of M0 that are added to a register number."""

    first: int = 0
    width: int = 0

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.first

    def read(self, m0: int) -> int:
        return (m0 & self.mask) >> self.first


@dataclass(frozen=True, slots=True)
class RelativeMove:
    """The instruction that does the same without an index, and the indices of its two operands."""

    plain: str
    destination: IndexBits
    source: IndexBits

    @property
    def indices(self) -> tuple[IndexBits, IndexBits]:
        """Those of the operands in their order."""
        return self.destination, self.source


# ISA manuals of CDNA3 (scalar ones), RDNA3 and RDNA4: "VGPR Indexing", and the description of each instruction.
_NO, _ALL, _LOW, _HIGH = IndexBits(), IndexBits(0, 32), IndexBits(0, 10), IndexBits(16, 10)
MOVES = {
    "v_movreld_b32": RelativeMove("v_mov_b32", _ALL, _NO),
    "v_movrels_b32": RelativeMove("v_mov_b32", _NO, _ALL),
    "v_movrelsd_b32": RelativeMove("v_mov_b32", _ALL, _ALL),
    "v_movrelsd_2_b32": RelativeMove("v_mov_b32", _HIGH, _LOW),
    "v_swaprel_b32": RelativeMove("v_swap_b32", _HIGH, _LOW),
    "s_movreld_b32": RelativeMove("s_mov_b32", _ALL, _NO),
    "s_movreld_b64": RelativeMove("s_mov_b64", _ALL, _NO),
    "s_movrels_b32": RelativeMove("s_mov_b32", _NO, _ALL),
    "s_movrels_b64": RelativeMove("s_mov_b64", _NO, _ALL),
    "s_movrelsd_2_b32": RelativeMove("s_mov_b32", _HIGH, _LOW),
}
# The registers that an index of a scalar register can reach. RDNA: s0 to s105 and vcc (ISA manual, 3.3.1, S_MOVREL).
# gfx9 has other registers behind s101, and its manuals do not say what an index there means.
_SCALARS = {"gfx9": 102, "gfx11": 108, "gfx12": 108}


def make_plain(instruction: Instruction) -> Instruction:
    """Return the instruction without its indices."""
    return replace(instruction, mnemonic=MOVES[instruction.mnemonic].plain)


def check_operands(instruction: Instruction, code: LoadedCode) -> None:
    """Raise for an operand whose number no index is added to: m0, exec, registers of the trap handler."""
    kind = instruction.mnemonic[0]
    for operand, bits in zip(instruction.operands, MOVES[instruction.mnemonic].indices, strict=True):
        if bits.width and (operand.kind != kind or (kind == "s" and operand.index >= count_scalars(code))):
            raise code.unknown("this register with an index", instruction)


def count_scalars(code: LoadedCode) -> int:
    """Return the number of scalar registers that an index can reach."""
    return _SCALARS[generation(code.arch.name)]


def index_move(instruction: Instruction, code: LoadedCode) -> RegisterIndexing:
    """Return the indexing of an instruction in `MOVES`. It does not check vector registers."""
    check_operands(instruction, code)
    move = MOVES[instruction.mnemonic]

    def shift(m0: int) -> Instruction:
        operands = (
            _shift_operand(instruction, operand, bits.read(m0), code) if bits.width else operand
            for operand, bits in zip(instruction.operands, move.indices, strict=True)
        )
        return replace(make_plain(instruction), operands=tuple(operands))

    return RegisterIndexing(move.destination.mask | move.source.mask, shift, instruction.mnemonic.startswith("v_"))


def _shift_operand(instruction: Instruction, operand: Operand, index: int, code: LoadedCode) -> Operand:
    if operand.kind == "s":
        if operand.count == 2 and index % 2:
            raise code.unknown(PAIR_INDEX, instruction)
        if operand.index + operand.count + index > count_scalars(code):
            raise CodeObjectError(f"no index reaches s{operand.index + index}")
    return replace(operand, index=operand.index + index)
