"""The kernel descriptor: every bit is known or refused."""

from __future__ import annotations

import struct

import pytest
from assembled import LANES, assemble

from tilewright.emulator.code_object import read_code_object
from tilewright.emulator.descriptor import Descriptor, read_descriptor
from tilewright.emulator.faults import CodeObjectError

# Offsets of the words with bits, and the bits that are known on gfx942 and gfx1201.
RSRC3, RSRC1, RSRC2, PROPERTIES = 44, 48, 52, 56


def raw(**words: int) -> bytes:
    names = ("lds", "private", "kernarg", "zero", "entry", "rsrc3", "rsrc1", "rsrc2", "properties", "preload", "last")
    values = {name: words.get(name, 0) for name in names}
    layout = "<IIIIq20xIIIHHI"
    return struct.pack(layout, *values.values())


def read(arch: str = "gfx942", **words: int) -> Descriptor:
    return read_descriptor(raw(**words), 0x1000, arch)


def test_sizes_and_registers() -> None:
    found = read(
        lds=4096, private=32, kernarg=64, entry=0x500, rsrc1=3 | 0xF0 << 12 | 1 << 23, rsrc3=3,
        rsrc2=2 << 1 | 1 << 7 | 1 << 9 | 1 << 11, properties=1 << 3,
    )  # fmt: skip
    assert (found.lds_bytes, found.private_bytes, found.kernarg_bytes) == (4096, 32, 64)
    assert found.entry == 0x1500
    assert (found.vgprs, found.accumulators) == (32, 16)
    assert found.float_mode == 0xF0
    assert found.ieee
    assert not found.dx10_clamp
    assert found.block_ids == (True, False, True)
    assert found.thread_dimensions == 2
    assert found.user.kernarg
    assert found.user.count == found.user_sgprs == 2


def test_preloaded_arguments_need_registers() -> None:
    found = read(rsrc2=10 << 1, properties=1 << 3, preload=8 | 2 << 7)
    assert (found.user.preload_length, found.user.preload_offset) == (8, 2)
    with pytest.raises(CodeObjectError, match="requests 10 user registers, but allots 9"):
        read(rsrc2=9 << 1, properties=1 << 3, preload=8 | 2 << 7)


def test_only_gfx90a_gets_the_place_of_private_memory() -> None:
    assert read("gfx90a", rsrc2=1).private_offset
    assert not read("gfx942", rsrc2=1).private_offset
    assert not read("gfx1100", rsrc2=1, properties=1 << 10).private_offset


@pytest.mark.parametrize("arch", LANES)
def test_every_other_bit_is_refused(arch: str) -> None:
    """Each single bit either changes what was read, or is one that does not matter here, or is refused."""
    harmless = {
        "gfx9": {(RSRC1, bit) for bit in range(6, 10)},  # scalar registers: every wave has all
        "gfx1": {(RSRC1, 29), (RSRC1, 30), (RSRC1, 31), *((RSRC3, bit) for bit in range(4, 12))},
    }[arch[:4]]
    harmless |= {(RSRC1, 21)} if arch == "gfx1201" else set()
    harmless |= {(RSRC2, 0)} if arch != "gfx90a" else set()  # these find private memory by themselves
    plain = raw(properties=(LANES[arch] == 32) << 10)
    before = read_descriptor(plain, 0, arch)
    refused = 0
    for bit in range(512):
        changed = bytearray(plain)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            after = read_descriptor(bytes(changed), 0, arch)
        except CodeObjectError:
            refused += 1
            continue
        word = bit // 8 // 4 * 4
        assert after != before or (word, bit - 8 * word) in harmless, f"bit {bit} is ignored"
    assert refused > 230


@pytest.mark.compile
@pytest.mark.parametrize("arch", LANES)
def test_what_the_assembler_writes(arch: str) -> None:
    more = "  .amdhsa_float_denorm_mode_32 3\n  .amdhsa_user_sgpr_dispatch_ptr 1"
    code = read_code_object(assemble("s_endpgm", arch, vgprs=100, lds=2048, private=64, directives=more))
    address, data = code.find_descriptor("kernel")
    found = read_descriptor(data, address, arch)
    assert found.entry == code.symbols["kernel"].address
    assert (found.lds_bytes, found.private_bytes, found.lanes) == (2048, 64, LANES[arch])
    assert found.vgprs == 104
    assert found.accumulators == (100 if LANES[arch] == 64 else 104)
    assert found.float_mode == 0xF0
    assert found.user.dispatch
    assert found.user.kernarg
    assert found.user_sgprs == 4
    assert found.thread_dimensions == 3
