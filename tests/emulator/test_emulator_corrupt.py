"""Damaged code objects are refused or run into a fault. They never bring down the process."""

from __future__ import annotations

import random
import re

import pytest
from assembled import LANES, assemble

import tilewright.arch
from tilewright.emulator.code_object import read_code_object
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.faults import CodeObjectError, Fault
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

# Sums 16 words of the LDS that a loop filled, over scalar, vector, LDS and global instructions.
BODY = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_mov_b32 s6, 0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, 0
.Lloop:
  v_add_u32_e32 v2, s6, v2
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v1
  s_waitcnt lgkmcnt(0)
  v_add_f32_e32 v2, v2, v3
  v_pk_fma_f16 v4, v2, v3, v2
  v_mfma_f32_4x4x4_16b_f16 v[8:11], v[4:5], v[2:3], v[8:11]
  s_add_i32 s6, s6, 1
  s_cmp_lt_u32 s6, 16
  s_cbranch_scc1 .Lloop
  v_cmp_gt_u32_e32 vcc, 32, v0
  s_and_saveexec_b64 s[8:9], vcc
  s_cbranch_execz .Lout
  global_store_dword v1, v2, s[4:5]
.Lout:
  s_endpgm
"""


def code() -> bytes:
    return assemble(BODY, lds=1024, vgprs=16)


def read(data: bytes) -> bool:
    """Whether it can be read; if not, the error must be ours."""
    try:
        read_code_object(data)
    except CodeObjectError as error:
        assert str(error)
        return False
    return True


def test_every_short_file_is_refused() -> None:
    data = code()
    # The last bytes are section headers and names, without which nothing can be found.
    sizes = range(0, len(data), 11)
    assert [size for size in sizes if read(data[:size])] == []


@pytest.mark.parametrize("arch", LANES)
def test_flipped_bits_are_refused_or_read(arch: str) -> None:
    data = assemble("s_endpgm", arch)
    generator = random.Random(arch)
    outcomes = set()
    for _ in range(250):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 1, 4))):
            damaged[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        outcomes.add(read(bytes(damaged)))
    assert outcomes == {True, False}


def test_bits_of_the_header_and_bytes_of_the_notes() -> None:
    data = code()
    for bit in range(0, 8 * 64, 2):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        read(bytes(damaged))
    note = data.index(b"amdhsa.kernels")
    for byte in range(note - 64, note + 600, 7):
        damaged = bytearray(data)
        damaged[byte] ^= 0xFF
        read(bytes(damaged))


@pytest.mark.parametrize("byte", [0x00, 0x30, 0xC3, 0xFF])
def test_damaged_names_are_refused_or_reported(byte: int) -> None:
    """The kernel stops itself, so that its name is translated for a message."""
    name = b"_Z6kernelPf"
    data = assemble("s_trap 3", name=name.decode())
    for start in (match.start() for match in re.finditer(name, data)):
        for at in range(start, start + len(name)):
            device = EmulatedDevice(tilewright.arch.load("gfx942"), Memory(1 << 20))
            with pytest.raises(Fault):
                (kernel,) = device.load(data[:at] + bytes([byte]) + data[at + 1 :]).kernels.values()
                device.launch(kernel, Launch(Extent(1), Extent(64), bytes(16)))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 0, "neither a code object nor a bundle"),
        (4, 1, "ELF"),  # 32 bits
        (7, 0, "OS ABI is 0"),
        (8, 9, "ABI version is 9"),
        (18, 62, "machine EM_X86_64"),
        (16, 1, "of type ET_REL"),
        (48, 0x30, r"GPU number 0x30; known are gfx90a, gfx942, gfx950, gfx1100, gfx1201"),
        (48, 0x4F, "it is for gfx950, but this is an emulated gfx942"),
    ],
)
def test_a_wrong_header_says_what_is_wrong(at: int, value: int, message: str) -> None:
    damaged = bytearray(code())
    damaged[at] = value
    device = EmulatedDevice(tilewright.arch.load("gfx942"), Memory(1 << 20))
    with pytest.raises(CodeObjectError, match=message):
        device.load(bytes(damaged))


@pytest.mark.parametrize("damages", [20, pytest.param(60, marks=pytest.mark.deep)])
@pytest.mark.parametrize("mode", Mode)
def test_damaged_instructions_fault_or_run(mode: Mode, damages: int) -> None:
    """Bits of the code itself are flipped. What runs, runs to the end or to a fault with its place."""
    data = code()
    text = _text_at(data)
    generator = random.Random(7)
    memory = Memory(1 << 24)
    device = EmulatedDevice(tilewright.arch.load("gfx942"), memory)
    output = memory.allocate(1024, "output")
    launch = Launch(Extent(2), Extent(256), output.to_bytes(8, "little") + bytes(8))
    device.launch(device.load(data).kernels["kernel"], launch, mode)
    names = set()
    for _ in range(damages):
        damaged = bytearray(data)
        damaged[text[0] + generator.randrange(text[1])] ^= 1 << generator.randrange(8)
        try:
            module = device.load(bytes(damaged))
            device.launch(module.kernels["kernel"], launch, mode, limit=200_000)
            names.add("ran")
        except Fault as fault:
            names.add(fault.name)
            assert fault.place.instruction is not None or fault.name in ("bad-code-object", "bad-jump")
    assert {"ran", "unknown-instruction"} < names


def _text_at(data: bytes) -> tuple[int, int]:
    """Where the code is in the file, and how many bytes it has."""
    code_object = read_code_object(data)
    symbol = code_object.symbols["kernel"]
    body = code_object.read_bytes(symbol.address, symbol.size)
    return data.index(body), len(body)
