"""Waves and instructions made by hand, to run single instructions without a machine."""

from __future__ import annotations

import numpy as np

from tilewright.arch.load import load as load_arch
from tilewright.emulator import access
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.disassembly import parse_operand
from tilewright.emulator.group import Batch, WaveGroup, WaveIndices
from tilewright.emulator.instruction import EXEC, SCALARS, Instruction
from tilewright.emulator.launch import Counters
from tilewright.emulator.lds import Lds
from tilewright.emulator.memory import Memory
from tilewright.emulator.waitcnt import find_capacities, find_counters

REGISTERS = 32


def code_for(arch: str = "gfx942") -> LoadedCode:
    known = load_arch(arch)
    return LoadedCode(known, "kernel", known.wave_size, 16, 0)


def instruction(mnemonic: str, *operands: str, **modifiers: int | str | bool) -> Instruction:
    parsed = tuple(parse_operand(text) for text in operands)
    assert all(parsed), operands
    text = f"{mnemonic} {', '.join(operands)} {' '.join(f'{k}:{v}' for k, v in modifiers.items())}"
    return Instruction(0x100, 8, mnemonic, parsed, text.strip(), modifiers=modifiers)


def run(group: WaveGroup, arch: str, mnemonic: str, *operands: str, **modifiers: int | str | bool) -> None:
    step = access.translate(instruction(mnemonic, *operands, **modifiers), code_for(arch))
    assert step is not None
    step(group)


def wait(group: WaveGroup, kind: str, count: int = 0) -> None:
    """Let effects of a kind of access become visible."""
    group.drain(group.batch.counter_of[kind], count)


def group_of(
    arch: str = "gfx942",
    *,
    waves: int = 4,
    waves_per_block: int = 2,
    lds: int = 4096,
    scratch: int = 0,
    strict: bool = False,
    detailed: bool = False,
    memory: Memory | None = None,
    seed: int = 0,
) -> WaveGroup:
    """Waves with random registers and all lanes active."""
    lanes = load_arch(arch).wave_size
    memory = memory or Memory(1 << 26)
    blocks = waves // waves_per_block
    address = memory.allocate(waves * lanes * scratch, "private memory") if scratch else 0
    batch = Batch(
        memory, Lds(blocks, lds), Counters(), strict, detailed,
        scratch=address, scratch_bytes=scratch, waves_per_block=waves_per_block,
        counter_of=find_counters(arch), capacity_of=find_capacities(arch),
    )  # fmt: skip
    numbers = np.random.default_rng(seed)
    vgprs = numbers.integers(0, 2**32, (REGISTERS, waves, lanes), np.uint32)
    sgprs = numbers.integers(0, 2**32, (waves, SCALARS), np.uint32)
    sgprs[:, EXEC : EXEC + 2] = 0xFFFFFFFF
    places = WaveIndices(
        np.arange(waves),
        np.arange(blocks).repeat(waves_per_block) * batch.lds.stride,
        np.arange(waves, dtype=np.uint64) * np.uint64(lanes * scratch) + np.uint64(address),
    )
    return WaveGroup(batch, vgprs, sgprs, np.zeros(waves, np.bool_), places, 0xF0)


def set_exec(group: WaveGroup, mask: np.ndarray) -> None:
    group.set_mask(EXEC, mask)
    group.update_exec_mask()


def some_lanes(group: WaveGroup, seed: int = 1) -> np.ndarray:
    """Switch off about half the lanes; one wave has none left."""
    mask = np.random.default_rng(seed).random((group.waves, group.lanes)) < 0.5
    mask[-1] = False
    set_exec(group, mask)
    return mask


def set_pair(group: WaveGroup, register: int, values: np.ndarray | int) -> None:
    """64-bit values of lanes in two vector registers."""
    wide = np.broadcast_to(np.asarray(values, np.uint64), (group.waves, group.lanes))
    group.v[register][...] = wide.astype(np.uint32)
    group.v[register + 1][...] = (wide >> np.uint64(32)).astype(np.uint32)


def set_scalar_pair(group: WaveGroup, register: int, value: int) -> None:
    group.s[register][...] = value & 0xFFFFFFFF
    group.s[register + 1][...] = value >> 32


def octets(group: WaveGroup, register: int, row: int, lane: int, count: int) -> bytes:
    """Bytes of vector registers of one lane."""
    return b"".join(int(group.v[register + k][row, lane]).to_bytes(4, "little") for k in range(-(-count // 4)))[:count]
