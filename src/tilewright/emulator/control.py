"""Control instructions of a wave: jumps, barriers, the end, waits, hints and the mode register."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tilewright.base.lazy_module import LazyModule
from tilewright.building.instruction_mix import classify
from tilewright.emulator import waitcnt
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.faults import TrapFault
from tilewright.emulator.group import Mask, PendingEffect, Step, WaveGroup
from tilewright.emulator.indexed_registers import make_index_step
from tilewright.emulator.instruction import EXEC, VCC, Instruction, Operand

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

Condition = Callable[[WaveGroup], Mask]

# No visible effect: they control how the hardware issues, prefetches or drops caches.
# No cache is emulated, and s_waitcnt_depctr and s_wait_alu wait for pipeline counters, not for memory. The only event
# of s_wait_event is that exports of graphics may begin (LLVM's llvm.amdgcn.s.wait.event.export.ready).
_HINTS = frozenset({
    "s_nop", "v_nop", "v_clrexcp", "v_pipeflush", "s_sleep", "s_setprio", "s_clause", "s_delay_alu", "s_wait_event",
    "s_waitcnt_depctr", "s_wait_alu", "s_wait_idle", "s_singleuse_vdst", "s_icache_inv", "s_dcache_inv",
    "s_dcache_inv_vol", "s_dcache_wb", "s_dcache_wb_vol", "s_dcache_discard", "s_dcache_discard_x2", "s_gl1_inv",
    "s_inst_prefetch", "s_set_inst_prefetch_distance", "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_prefetch_data",
    "s_prefetch_data_pc_rel", "s_buffer_prefetch_data", "s_incperflevel", "s_decperflevel", "s_ttracedata",
    "s_ttracedata_imm", "s_wakeup", "s_version", "s_code_end", "s_set_gpr_idx_off",
})  # fmt: skip
_ENDS = frozenset(("s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done"))
_MODE = re.compile(r"hwreg\((\w+)(?:, ?(\d+), ?(\d+))?\)")
# MODE's other name is that of gfx12. Of its bits, rounding and denormals (0 to 7) and FP16_OVFL (23) are emulated.
_MODE_NAMES = ("HW_REG_MODE", "HW_REG_WAVE_MODE")
_MODE_BITS = 0xFF | 1 << 23
# Readable bits of hardware registers that tell where a wave runs, as AMD's ISA documents place them: the die; the
# compute unit (bits 8 to 11), its array and engine; on gfx11 and gfx12 the pair of units (10 to 13), array and engine.
# All are 0, as if all waves ran on the first unit. The place in the unit, the other bits, has no counterpart.
_PLACE_BITS = {
    "HW_REG_XCC_ID": 0xFFFF_FFFF,
    "HW_REG_HW_ID": 0xFF00,
    "HW_REG_HW_ID1": 0x1D_3C00,
    "HW_REG_WAVE_HW_ID1": 0x1D_3C00,
}
_CLOCKS = ("HW_REG_SHADER_CYCLES", "HW_REG_SHADER_CYCLES_LO")
# Compilers use one barrier of global wave sync, and one wave of each work-group arrives at it.
_GRID_BARRIER = "ds_gws_barrier"
_BLOCK_BARRIER = (-1, 0xFFFF)  # operands of s_barrier_signal and s_barrier_wait for the barrier of the work-group


def do_nothing(group: WaveGroup) -> None:
    """The step of a hint. The engine skips it."""


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue at `target` where `condition` holds (None: always)."""

    target: int
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Continue at the address in a register pair, or at `target`. The return address is written to the pair `link`."""

    register: int | None
    target: int
    link: int | None


@dataclass(frozen=True, slots=True)
class Barrier:
    """Signal the barrier of the work-group, wait for it, or both. `first`: SCC is set for the first wave to signal."""

    kind: Literal["both", "signal", "wait"]
    first: bool = False


@dataclass(frozen=True, slots=True)
class GridBarrier:
    """Wait for waves of the whole grid: one more than the first active lane's value of a vector register."""

    register: int


@dataclass(frozen=True, slots=True)
class SkipVector:
    """s_setvskip: skip vector instructions from here on where `condition` holds, else execute them."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class End:
    """The wave ends."""


Ending = Jump | Call | Barrier | GridBarrier | SkipVector | End

SKIPPING = 1  # in an address, which is a multiple of 4: vector instructions are skipped from there on
_SKIPPED = ("valu", "matrix", "lds", "global")  # classes of vector instructions


def find_ending(instruction: Instruction, code: LoadedCode) -> Ending | None:
    """Return how an instruction ends its basic block, or None if it does not."""
    name = instruction.mnemonic
    if name in _ENDS:
        return End()
    if name == "s_branch":
        return Jump(_read_target(instruction, code))
    if name.startswith("s_cbranch_"):
        condition = _CONDITIONS.get(name.removeprefix("s_cbranch_"))
        return Jump(_read_target(instruction, code), condition(code.lanes)) if condition else None
    if name in ("s_setpc_b64", "s_swappc_b64", "s_call_b64"):
        return _read_call(instruction, code)
    return _read_skip(instruction, code) or _read_barrier(instruction, code)


def translate(instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of a control instruction that does not end a basic block; None for other instructions."""
    step = _translate_step(instruction, code)
    if step is not None and instruction.modifiers:
        raise code.unknown(f"the modifier '{next(iter(instruction.modifiers))}'", instruction)
    return step


def _translate_step(instruction: Instruction, code: LoadedCode) -> Step | None:
    name = instruction.mnemonic
    if name in _HINTS:
        return do_nothing
    if wait := waitcnt.translate(instruction, code):
        return wait
    if name == "s_sendmsg" and instruction.operands[0].name == "sendmsg(MSG_DEALLOC_VGPRS)":
        return do_nothing
    if name == "s_trap":
        return _translate_trap(instruction)
    make = _OTHERS.get(name)
    return make(instruction, code) if make else make_index_step(instruction, code)


def can_end_block(mnemonic: str) -> bool:
    """Whether an instruction with this name can be the last of a basic block."""
    return mnemonic in (*_ENDS, _GRID_BARRIER) or mnemonic.startswith(
        ("s_branch", "s_cbranch_", "s_setpc_", "s_swappc_", "s_call_", "s_barrier", "s_setvskip")
    )


def is_skipped(mnemonic: str) -> bool:
    """Whether s_setvskip skips an instruction."""
    return classify(mnemonic) in _SKIPPED


def skip_vector(
    instruction: Instruction, ending: Ending | None, step: Step | None, code: LoadedCode
) -> tuple[Ending | None, Step | None]:
    """Return ending and step of an instruction while vector instructions are skipped."""
    if isinstance(ending, Call):
        raise code.unknown("a call while vector instructions are skipped", instruction)
    if isinstance(ending, Jump):
        return replace(ending, target=ending.target | SKIPPING), None
    return ending, do_nothing if is_skipped(instruction.mnemonic) else step


def _make_bit_test(value: Operand, number: Operand, instruction: Instruction, code: LoadedCode) -> Condition:
    """Return a test of a bit of a scalar operand."""
    for operand in (value, number):
        if operand.kind not in ("s", "const"):
            raise code.unknown("an operand that is not scalar", instruction)

    def test(group: WaveGroup) -> Mask:
        bits, place = (
            group.s[operand.index] if operand.kind == "s" else np.full(group.waves, operand.value, np.int64)
            for operand in (value, number)
        )
        return (bits.astype(np.int64) >> (place.astype(np.int64) & 31) & 1).astype(np.bool_)

    return test


def _read_target(instruction: Instruction, code: LoadedCode) -> int:
    last = instruction.operands[-1]
    if last.kind != "const" or not isinstance(last.value, int):
        raise code.unknown("the target of this branch", instruction)
    return last.value


def _make_zero_test(register: int) -> Callable[[int], Condition]:
    """Return a test whether a lane mask is empty."""

    def make(lanes: int) -> Condition:
        if lanes == 32:
            return lambda group: group.s[register] == 0
        return lambda group: group.s64[register] == 0

    return make


def _make_nonzero_test(register: int) -> Callable[[int], Condition]:
    def make(lanes: int) -> Condition:
        if lanes == 32:
            return lambda group: group.s[register] != 0
        return lambda group: group.s64[register] != 0

    return make


_CONDITIONS: Mapping[str, Callable[[int], Condition]] = {
    "scc0": lambda lanes: lambda group: ~group.scc,  # noqa: ARG005
    "scc1": lambda lanes: lambda group: group.scc,  # noqa: ARG005
    "vccz": _make_zero_test(VCC),
    "vccnz": _make_nonzero_test(VCC),
    "execz": _make_zero_test(EXEC),
    "execnz": _make_nonzero_test(EXEC),
}


def _read_call(instruction: Instruction, code: LoadedCode) -> Call:
    operands = instruction.operands
    link = _get_register_pair(operands[0], instruction, code) if instruction.mnemonic != "s_setpc_b64" else None
    if instruction.mnemonic == "s_call_b64":
        return Call(None, _read_target(instruction, code), link)
    return Call(_get_register_pair(operands[-1], instruction, code), 0, link)


def _get_register_pair(operand: Operand, instruction: Instruction, code: LoadedCode) -> int:
    if operand.kind != "s" or operand.count != 2 or operand.index % 2:
        raise code.unknown("an address operand that is not a pair of scalar registers", instruction)
    return operand.index


def _read_skip(instruction: Instruction, code: LoadedCode) -> SkipVector | None:
    if instruction.mnemonic != "s_setvskip":
        return None
    value, number = instruction.operands
    return SkipVector(_make_bit_test(value, number, instruction, code))


def _read_barrier(instruction: Instruction, code: LoadedCode) -> Barrier | GridBarrier | None:
    name = instruction.mnemonic
    if name == _GRID_BARRIER:
        return _read_grid_barrier(instruction, code)
    if name == "s_barrier":
        return Barrier("both")
    if name not in ("s_barrier_signal", "s_barrier_signal_isfirst", "s_barrier_wait"):
        return None
    which = instruction.operands[0]
    if which.kind != "const" or which.value not in _BLOCK_BARRIER:
        raise code.unknown("a barrier other than that of the work-group", instruction)
    return Barrier("wait") if name.endswith("wait") else Barrier("signal", name.endswith("isfirst"))


def _read_grid_barrier(instruction: Instruction, code: LoadedCode) -> GridBarrier:
    (count,) = instruction.operands
    others = {name: value for name, value in instruction.modifiers.items() if name != "gds"}
    if count.kind != "v" or others:
        raise code.unknown("a barrier of the grid other than the first", instruction)
    return GridBarrier(count.index)


def _translate_trap(instruction: Instruction) -> Step:
    def execute(_: WaveGroup) -> None:
        # Compilers use trap 2 for failed assertions (LLVM, "Trap Handler ABI").
        raise TrapFault(f"the kernel stopped itself with trap {instruction.operands[0].value}")

    return execute


def _get_pc(instruction: Instruction, code: LoadedCode) -> Step:
    register = _get_register_pair(instruction.operands[0], instruction, code)
    value = np.uint64(code.base + instruction.next_address)

    def execute(group: WaveGroup) -> None:
        group.s64[register][...] = value

    return execute


def reads_clock(instruction: Instruction) -> bool:
    """Whether an instruction reads a clock into a register pair; on gfx11 and later it is an answer to a message."""
    if instruction.mnemonic == "s_sendmsg_rtn_b64":
        return instruction.operands[1].name == "sendmsg(MSG_RTN_GET_REALTIME)"
    return instruction.mnemonic in ("s_memtime", "s_memrealtime")


def _translate_time(instruction: Instruction, code: LoadedCode) -> Step:
    """Read a clock that counts the engine's steps, so that it increases and is the same in every run."""
    if not reads_clock(instruction):
        raise code.unknown("the message", instruction)
    register = _get_register_pair(instruction.operands[0], instruction, code)

    def make_pending(now: int) -> PendingEffect:
        def commit(group: WaveGroup) -> None:
            group.s64[register][...] = np.uint64(now)

        return PendingEffect(commit, lambda _: make_pending(now), in_order=False)

    def execute(group: WaveGroup) -> None:
        group.schedule_effect("scalar", make_pending(group.batch.counters.steps))

    return execute


def is_mode_part(name: str, first: int, width: int) -> bool:
    """Whether bits of a hardware register are emulated bits of the mode register."""
    bits = ((1 << width) - 1) << first
    return name in _MODE_NAMES and not bits & ~_MODE_BITS


def _parse_hardware_register(instruction: Instruction, which: int, code: LoadedCode) -> tuple[str, int, int]:
    """Return name, first bit and width of a hwreg(…) operand."""
    match = _MODE.fullmatch(instruction.operands[which].name)
    if match is None:
        raise code.unknown("the hardware register", instruction)
    return match[1], int(match[2] or 0), int(match[3] or 32)


def _get_register(instruction: Instruction, code: LoadedCode) -> Step:
    name, first, width = _parse_hardware_register(instruction, 1, code)
    register = instruction.operands[0].index
    limit = (1 << width) - 1
    if not limit << first & ~_PLACE_BITS.get(name, 0):
        return lambda group: _set_value(group.s[register], np.uint32(0))
    if name in _CLOCKS:
        return lambda group: _set_value(
            group.s[register], np.uint32(group.batch.counters.steps >> first & limit & 0xFFFFF)
        )
    if not is_mode_part(name, first, width):
        raise code.unknown(f"reading {width} bits of {name} from bit {first}", instruction)
    return lambda group: _set_value(group.s[register], np.uint32(group.float_mode >> first & limit))


def _set_value(register: NDArray[np.uint32], value: np.uint32) -> None:
    register[...] = value


def _set_register(instruction: Instruction, code: LoadedCode) -> Step:
    name, first, width = _parse_hardware_register(instruction, 0, code)
    if not is_mode_part(name, first, width):
        raise code.unknown(f"writing {width} bits of {name} from bit {first}", instruction)
    source = instruction.operands[1]
    if source.kind == "const" and isinstance(source.value, int):
        return _make_mode_step(first, width, source.value, instruction, code)
    if source.kind != "s":
        raise code.unknown("the new value of the mode register", instruction)
    register = source.index

    def execute(group: WaveGroup) -> None:
        values = group.s[register]
        if (values != values[0]).any():
            raise code.unknown("a mode register value that differs between waves", instruction)
        _make_mode_step(first, width, int(values[0]), instruction, code)(group)

    return execute


def _make_mode_step(first: int, width: int, value: int, instruction: Instruction, code: LoadedCode) -> Step:
    mask = ((1 << width) - 1) << first
    bits = value << first & mask
    if bits & 0xF:
        raise code.unknown("rounding other than to the nearest", instruction)

    def execute(group: WaveGroup) -> None:
        group.float_mode = group.float_mode & ~mask | bits

    return execute


def _make_mode_part(first: int) -> Callable[[Instruction, LoadedCode], Step]:
    """s_round_mode and s_denorm_mode: four bits of the mode register."""

    def make(instruction: Instruction, code: LoadedCode) -> Step:
        return _make_mode_step(first, 4, int(instruction.operands[0].value), instruction, code)

    return make


_OTHERS: Mapping[str, Callable[[Instruction, LoadedCode], Step]] = {
    "s_getpc_b64": _get_pc,
    "s_memtime": _translate_time,
    "s_memrealtime": _translate_time,
    "s_sendmsg_rtn_b64": _translate_time,
    "s_getreg_b32": _get_register,
    "s_setreg_b32": _set_register,
    "s_setreg_imm32_b32": _set_register,
    "s_round_mode": _make_mode_part(0),
    "s_denorm_mode": _make_mode_part(4),
}
