"""Single arithmetic instructions: written as text, assembled and disassembled by LLVM, run on made-up waves."""

from __future__ import annotations

import functools
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from hand_made import code_for, group_of

from tilewright.arch.load import load
from tilewright.emulator import alu
from tilewright.emulator.disassembly import disassemble, parse_line
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import Instruction


@functools.cache
def instructions(arch: str, *texts: str) -> tuple[Instruction, ...]:
    """What LLVM makes of the texts."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.o")
        command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=obj", "-o", str(made)]
        subprocess.run(command, input="\n".join(texts).encode(), check=True)
        found = tuple(parse_line(line) for line in disassemble(made.read_bytes(), load(arch)))
    assert len(found) == len(texts)
    return found


def run(group: WaveGroup, arch: str, *texts: str) -> None:
    """Run instructions on a group."""
    for instruction in instructions(arch, *texts):
        step = alu.translate(instruction, code_for(arch))
        assert step is not None, instruction.text
        with np.errstate(all="ignore"):
            step(group)


def waves(arch: str, seed: int = 0, *, some: bool = True) -> WaveGroup:
    """Three waves with random registers; of the second about half the lanes are active, of the third every third."""
    group = group_of(arch, waves=3, waves_per_block=1, seed=seed)
    if some:
        mask = np.ones((3, group.lanes), np.bool_)
        mask[1] = np.random.default_rng(seed + 1).random(group.lanes) < 0.5
        mask[2] = np.arange(group.lanes) % 3 == 1
        group.set_mask(126, mask)
        group.update_exec_mask()
    return group


def lanes_of(group: WaveGroup, register: int) -> list[list[int]]:
    """A vector register as plain numbers."""
    return [[int(value) for value in row] for row in group.v[register]]


def active(group: WaveGroup) -> list[list[bool]]:
    return [[bool(value) for value in row] for row in group.exec_mask]


def as_float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def as_half(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0])


def float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def half_bits(value: float) -> int:
    with np.errstate(all="ignore"):
        return int(np.float16(value).view(np.uint16))


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
