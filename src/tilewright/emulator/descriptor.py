"""The kernel descriptor: 64 bytes that define how the hardware starts a kernel.

Layout and bits: LLVM, "User Guide for AMDGPU Backend", "Kernel Descriptor". Every set bit must be known here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.hardware import WAVE_PRIVATE_BYTES, generation

SIZE = 64
ENTRY_ALIGNMENT = 256  # of the first instruction
_LAYOUT = struct.Struct("<IIIIq20sIIIHHI")

# Fields by generation: name, first bit and number of bits. Bits outside all fields must be 0.
_Fields = tuple[tuple[str, int, int], ...]
_RSRC1: _Fields = (("vgprs", 0, 6), ("float_mode", 12, 8), ("fp16_ovfl", 26, 1))
_RSRC1_GFX9: _Fields = (*_RSRC1, ("sgprs", 6, 4), ("dx10_clamp", 21, 1), ("ieee", 23, 1))
_RSRC1_RDNA: _Fields = (*_RSRC1, ("wgp_mode", 29, 1), ("mem_ordered", 30, 1), ("forward_progress", 31, 1))
_RSRC1_GFX11: _Fields = (*_RSRC1_RDNA, ("dx10_clamp", 21, 1), ("ieee", 23, 1))
_RSRC1_GFX12: _Fields = (*_RSRC1_RDNA, ("round_robin", 21, 1))
_RSRC2: _Fields = (
    ("private_segment", 0, 1), ("user_sgprs", 1, 5), ("block_x", 7, 1), ("block_y", 8, 1), ("block_z", 9, 1),
    ("thread_ids", 11, 2),
)  # fmt: skip
_RSRC3_GFX9: _Fields = (("accum_offset", 0, 6),)
_RSRC3_GFX11: _Fields = (("prefetch", 4, 6),)
_RSRC3_GFX12: _Fields = (("prefetch", 4, 8),)
_PROPERTIES: _Fields = (
    ("private_buffer", 0, 1), ("dispatch", 1, 1), ("queue", 2, 1), ("kernarg", 3, 1), ("dispatch_id", 4, 1),
    ("flat_scratch", 5, 1), ("private_size", 6, 1), ("wave32", 10, 1), ("dynamic_stack", 11, 1),
)  # fmt: skip
_PRELOAD: _Fields = (("length", 0, 7), ("offset", 7, 9))
_GENERATIONS = {
    "gfx9": (_RSRC1_GFX9, _RSRC3_GFX9),
    "gfx11": (_RSRC1_GFX11, _RSRC3_GFX11),
    "gfx12": (_RSRC1_GFX12, _RSRC3_GFX12),
}
# The hardware finds scratch memory itself, without a descriptor or an offset in scalar registers
# (LLVM, GCNProcessors: feature architected-flat-scratch).
_OWN_SCRATCH = ("gfx942", "gfx950", "gfx1100", "gfx1201")
_VGPR_GRANULE = 8  # gfx90a and later CDNA, and RDNA with waves of 32 lanes
_ACCUM_GRANULE = 4


@dataclass(frozen=True, slots=True)
class UserRegisters:
    """The values that the first scalar registers get, in this order."""

    private_buffer: bool  # a buffer descriptor of the private memory, 4 registers
    dispatch: bool  # address of the dispatch packet
    queue: bool
    kernarg: bool
    dispatch_id: bool
    flat_scratch: bool
    private_size: bool  # 1 register
    preload_offset: int  # first argument word that is loaded to registers, and the number of words
    preload_length: int

    @property
    def count(self) -> int:
        pairs = (self.dispatch, self.queue, self.kernarg, self.dispatch_id, self.flat_scratch)
        return 4 * self.private_buffer + 2 * sum(pairs) + self.private_size + self.preload_length


@dataclass(frozen=True, slots=True)
class Descriptor:
    """How a kernel starts. Sizes are in bytes, addresses relative to the load address of the code object."""

    lds_bytes: int
    private_bytes: int  # per lane
    kernarg_bytes: int
    entry: int
    vgprs: int  # vector registers of a wave, including accumulation registers
    accumulators: int  # index of the vector register that holds a0; equal to `vgprs` when there are none
    float_mode: int
    ieee: bool
    fp16_ovfl: bool
    dx10_clamp: bool
    user: UserRegisters
    user_sgprs: int  # registers before the work-group indices
    block_ids: tuple[bool, bool, bool]
    private_offset: bool  # a register with the offset of the wave's private memory follows the indices
    thread_dimensions: int  # 1 to 3
    lanes: int
    dynamic_stack: bool

    @property
    def mode(self) -> int:
        """The MODE register at the start, without DX10_CLAMP."""
        return self.float_mode | self.ieee << 9 | self.fp16_ovfl << 23


def read_descriptor(data: bytes, address: int, arch: str) -> Descriptor:
    """Read the descriptor in `data`, which is at `address` of a code object for `arch`."""
    lds, private, kernarg, zero0, entry, zero1, rsrc3, rsrc1, rsrc2, properties, preload, zero2 = _LAYOUT.unpack(data)
    if zero0 or any(zero1) or zero2:
        raise CodeObjectError("the kernel descriptor has set bits that are reserved")
    rsrc1_fields, rsrc3_fields = _GENERATIONS[generation(arch)]
    one = _read_fields(rsrc1, rsrc1_fields, "compute_pgm_rsrc1", arch)
    two = _read_fields(rsrc2, _RSRC2, "compute_pgm_rsrc2", arch)
    three = _read_fields(rsrc3, rsrc3_fields, "compute_pgm_rsrc3", arch)
    asked = _read_fields(properties, _PROPERTIES, "kernel_code_properties", arch)
    load = _read_fields(preload, _PRELOAD, "kernarg_preload", arch)
    if two["thread_ids"] > 2:
        raise CodeObjectError("the kernel descriptor requests more than three work-item indices")
    if one["float_mode"] & 0xF:
        raise CodeObjectError(f"the kernel does not round to nearest: FLOAT_MODE {one['float_mode']:#x}")
    lanes = 32 if asked["wave32"] else 64
    most = WAVE_PRIVATE_BYTES[generation(arch)] // lanes
    if private > most:
        raise CodeObjectError(
            f"the kernel descriptor requests {private} bytes of private memory per lane, but {arch} has at most {most}"
        )
    user = _read_user_registers(asked, load, two["user_sgprs"])
    vgprs = (one["vgprs"] + 1) * _VGPR_GRANULE
    accumulators = (three["accum_offset"] + 1) * _ACCUM_GRANULE if "accum_offset" in three else vgprs
    if accumulators > vgprs:
        raise CodeObjectError(
            f"the kernel descriptor puts a0 at v{accumulators}, but requests {vgprs} vector registers"
        )
    return Descriptor(
        lds_bytes=lds,
        private_bytes=private,
        kernarg_bytes=kernarg,
        entry=address + entry,
        vgprs=vgprs,
        accumulators=accumulators,
        float_mode=one["float_mode"],
        ieee=bool(one.get("ieee", 0)),
        fp16_ovfl=bool(one["fp16_ovfl"]),
        dx10_clamp=bool(one.get("dx10_clamp", 1)),
        user=user,
        user_sgprs=two["user_sgprs"],
        block_ids=(bool(two["block_x"]), bool(two["block_y"]), bool(two["block_z"])),
        private_offset=bool(two["private_segment"]) and arch not in _OWN_SCRATCH,
        thread_dimensions=two["thread_ids"] + 1,
        lanes=lanes,
        dynamic_stack=bool(asked["dynamic_stack"]),
    )


def _read_fields(word: int, fields: _Fields, name: str, arch: str) -> dict[str, int]:
    """Return the fields of a word. A set bit outside all of them is an error."""
    known = 0
    for _, first, bits in fields:
        known |= ((1 << bits) - 1) << first
    if word & ~known:
        raise CodeObjectError(f"the kernel descriptor sets unknown bits of {name}: {word & ~known:#x} on {arch}")
    return {field: word >> first & ((1 << bits) - 1) for field, first, bits in fields}


def _read_user_registers(asked: dict[str, int], load: dict[str, int], stated: int) -> UserRegisters:
    user = UserRegisters(
        private_buffer=bool(asked["private_buffer"]),
        dispatch=bool(asked["dispatch"]),
        queue=bool(asked["queue"]),
        kernarg=bool(asked["kernarg"]),
        dispatch_id=bool(asked["dispatch_id"]),
        flat_scratch=bool(asked["flat_scratch"]),
        private_size=bool(asked["private_size"]),
        preload_offset=load["offset"],
        preload_length=load["length"],
    )
    if user.count > stated:
        raise CodeObjectError(f"the kernel descriptor requests {user.count} user registers, but allots {stated}")
    return user
