"""Defects of a GPU: instructions, launches and events of the HIP shim that differ from those of the emulated device.

With a changed instruction, kernels run on the NumPy engine, whose instructions are Python functions.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.emulator.access import buffer
from tilewright.emulator.device import DeviceKernel, EmulatedDevice
from tilewright.emulator.faults import LaunchFault
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.hip_shim import settings
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.launch import NUMPY, Counters
from tilewright.emulator.program import Program
from tilewright.runtime import hip_library

NONE, TIMED = "none", "timed"
Change = Callable[[Step, Instruction, Any], Step]


def uses(kernel: DeviceKernel, pattern: str) -> bool:
    """Whether the code of a kernel has an instruction that matches; other kernels of its code object count, too."""
    return any(re.match(pattern, line.text) for line in kernel.program.lines.values())


def change_steps(pattern: str, change: Change) -> None:
    """Change all instructions that match."""
    plain = Program._make_step

    def make_step(program: Program, instruction: Instruction) -> Step:
        step = plain(program, instruction)
        return change(step, instruction, program._code) if re.match(pattern, instruction.mnemonic) else step

    Program._make_step = make_step
    run_on_numpy()


def run_on_numpy() -> None:
    """Run all kernels on the NumPy engine, also those of the emulated device, which gets the settings of the caller.

    The engines differ in the order of sums inside matrix instructions, which would look like a defect.
    """
    settings.use_process_settings(settings.ShimSettings(engine=NUMPY))


def change_launches(pattern: str, act: Callable[[], Counters]) -> None:
    """Do something else instead of launching kernels with an instruction that matches."""
    plain = EmulatedDevice.launch

    def launch(device: EmulatedDevice, kernel: DeviceKernel, launch: Any, *rest: Any, **options: Any) -> Counters:
        return act() if uses(kernel, pattern) else plain(device, kernel, launch, *rest, **options)

    EmulatedDevice.launch = launch


def after(edit: Callable[[WaveGroup, int], None]) -> Change:
    """A change that edits the first destination register after the instruction."""

    def change(step: Step, instruction: Instruction, code: Any) -> Step:
        register = code.get_register(instruction.operands[0])

        def execute(group: WaveGroup) -> None:
            step(group)
            edit(group, register)

        return execute

    return change


def flip_last_bit(group: WaveGroup, register: int) -> None:
    group.v[register][...] = np.where(group.exec_mask, group.v[register] ^ np.uint32(1), group.v[register])


def drop_bits(group: WaveGroup, register: int) -> None:
    group.v[register] &= np.uint32(0xFFFFC000)


def corrupt_lane(group: WaveGroup, register: int) -> None:
    group.v[register][:, 5] ^= np.uint32(0x00400040)


def rotate_lanes(group: WaveGroup, register: int) -> None:
    group.v[register][...] = np.roll(group.v[register], 1, axis=1)


def round_toward_zero(step: Step, instruction: Instruction, code: Any) -> Step:
    """A conversion from 32 to 16 bits that rounds toward zero instead of to nearest."""
    to, source = (code.get_register(operand) for operand in instruction.operands[:2])

    def execute(group: WaveGroup) -> None:
        before = np.abs(group.vf[source].copy())
        step(group)
        low = (group.v[to] & np.uint32(0xFFFF)).astype(np.uint16)
        larger = np.abs(low.view(np.float16).astype(np.float32)) > before
        group.v[to][...] = np.where(larger & group.exec_mask, group.v[to] - np.uint32(1), group.v[to])

    return execute


def lose_lane(step: Step, instruction: Instruction, code: Any) -> Step:
    """An instruction that has no effect in the first lane."""

    def execute(group: WaveGroup) -> None:
        mask, full = group.exec_mask, group.full
        group.exec_mask, group.full = mask.copy(), False
        group.exec_mask[:, 0] = False
        step(group)
        group.exec_mask, group.full = mask, full

    return execute


def shorten_buffers() -> None:
    """Bounds of loads that end a byte too early: the last element reads as zero."""
    plain = buffer.read_raw_buffer

    def read(group: WaveGroup, register: int, instruction: Instruction, code: Any) -> Any:
        found = plain(group, register, instruction, code)
        return replace(found, records=found.records - 1) if "load" in instruction.mnemonic else found

    buffer.read_raw_buffer = read
    run_on_numpy()


def set_times(launch_us: float, other_us: float) -> None:
    """Events that measure so many microseconds for each launch, and for each fill and copy."""
    open_shim().set_launch_times(1, [launch_us] * 20_000, other_us)


def raise_fault() -> Counters:
    raise LaunchFault("the launch is refused")


def crash() -> Counters:
    os.kill(os.getpid(), signal.SIGSEGV)
    return Counters()


LOGARITHM = "v_log_f32"  # used by one kernel of the tests
DEFECTS: dict[str, Callable[[], None]] = {
    NONE: lambda: None,
    "numpy": run_on_numpy,
    TIMED: lambda: set_times(20.0, 400.0),
    "exponential": lambda: change_steps(r"v_exp_f32", after(flip_last_bit)),
    "matrix rounding": lambda: change_steps(r"v_mfma_f32_16x16x16_f16", after(drop_bits)),
    "conversion": lambda: change_steps(r"v_cvt_f16_f32", round_toward_zero),
    "8-bit conversion": lambda: change_steps(r"v_cvt_(?:pk_)?\w*(?:fp8|bf8)", after(flip_last_bit)),
    "lds": lambda: change_steps(r"ds_read", after(corrupt_lane)),
    "bounds": shorten_buffers,
    "atomic": lambda: change_steps(r"\w+_atomic_(?:pk_)?add", lose_lane),
    "cross-lane": lambda: change_steps(r"ds_bpermute|v_mov_b32_dpp|v_permlane", after(rotate_lanes)),
    "nothing written": lambda: change_launches(LOGARITHM, Counters),
    "launch error": lambda: change_launches(LOGARITHM, raise_fault),
    "crash": lambda: change_launches(LOGARITHM, crash),
    "event times": lambda: set_times(0.001, 0.001),
}


def install(name: str) -> None:
    """Use the HIP shim of this process as the library of its GPUs, with a defect."""
    hip_library.use_gpu_library(open_shim().path)
    DEFECTS[name]()
