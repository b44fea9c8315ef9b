"""Each number of a code object, replaced by a huge one: it runs or is refused, and both need little memory."""

from __future__ import annotations

import copy
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from assembled import LANES, assemble

import tilewright.arch
from tilewright.base.errors import DeviceError
from tilewright.emulator.bundle import read_bundle
from tilewright.emulator.code_object import read_code_object
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.entry_state import build_argument_memory
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.kernel_metadata import read_metadata
from tilewright.emulator.launch import Extent, Launch
from tilewright.emulator.memory import Memory

MIB = 1 << 20
HUGE = (1 << 29, 1 << 31, 1 << 36, 1 << 63)
BODY = """
  v_mov_b32_e32 v1, 7
  s_endpgm
.section .bss,"aw",@nobits
  .zero 4096
.text
"""
LAUNCH = Launch(Extent(1), Extent(64), bytes(16))


@contextmanager
def growing_less_than(size: int) -> Iterator[None]:
    """Inside, the resident memory of this process grows by less than `size` bytes, also for a moment."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident
    before = read_peak()
    yield
    assert read_peak() - before < size


def read_peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def is_refused(code: bytes, arch: str = "gfx942", engine: str = "native") -> bool:
    """Whether a code object is refused. Every other exception than ours ends the test."""
    device = EmulatedDevice(tilewright.arch.load(arch), Memory())
    try:
        for kernel in device.load(code).kernels.values():
            device.launch(kernel, LAUNCH, limit=1000, engine=engine)
    except DeviceError as error:
        assert str(error)
        return True
    return False


def change(code: bytes, at: int, size: int, value: int) -> bytes:
    """Add to the number of `size` bytes at `at`. A sum that does not fit wraps."""
    number = int.from_bytes(code[at : at + size], "little") + value
    return code[:at] + (number % (1 << 8 * size)).to_bytes(size, "little") + code[at + size :]


def list_numbers(code: bytes) -> Iterator[int]:
    """List where the 64-bit numbers are in the headers of the file and its sections, and in the symbols."""
    yield from (24, 32, 40)  # entry, program headers, section headers
    first, size, count = (*struct.unpack_from("<Q", code, 40), *struct.unpack_from("<HH", code, 58))
    for header in range(first, first + size * count, size):
        # Flags, address, offset, size, alignment, size of an entry.
        yield from (header + field for field in (8, 16, 24, 32, 48, 56))
        kind, _, _, offset, length = struct.unpack_from("<IQQQQ", code, header + 4)
        if kind == 11:  # SHT_DYNSYM
            yield from (symbol + field for symbol in range(offset, offset + length, 24) for field in (8, 16))


@pytest.mark.compile
def test_numbers_of_headers_and_symbols() -> None:
    code = assemble(BODY, private=64, lds=256)
    assert not is_refused(code)
    with growing_less_than(128 * MIB):
        refused = [is_refused(change(code, at, 8, value)) for at in list_numbers(code) for value in HUGE[::2]]
    assert any(refused) and not all(refused)


@pytest.mark.compile
@pytest.mark.parametrize("arch", LANES)
@pytest.mark.parametrize(("at", "size"), [(0, 4), (4, 4), (16, 8)], ids=["lds", "private", "entry"])
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_numbers_of_the_descriptor(engine: str, at: int, size: int, arch: str) -> None:
    code = assemble(BODY, arch, private=64, lds=256)
    _, descriptor = read_code_object(code).find_descriptor("kernel")
    at += code.index(descriptor)
    values = [*(1 << bits for bits in range(22, 8 * size, 3)), -(1 << 20)]
    with growing_less_than(128 * MIB):
        assert all(is_refused(change(code, at, size, value), arch, engine) for value in values)


@pytest.mark.compile
def test_private_memory_of_many_waves() -> None:
    """Each of 96 waves may have 8 MiB, the most of the hardware."""
    device = EmulatedDevice(tilewright.arch.load("gfx942"), Memory())
    kernel = device.load(assemble("s_endpgm", private=131_056)).kernels["kernel"]
    with growing_less_than(300 * MIB):
        device.launch(kernel, Launch(Extent(96), Extent(64), bytes(16)), engine="native")


HIDDEN = ("hidden_block_count_x", "hidden_group_size_y", "hidden_heap_v1", "hidden_none")


def test_numbers_of_the_metadata() -> None:
    arguments = [{".offset": 0, ".size": 8, ".value_kind": "global_buffer"}]
    arguments += [{".offset": 8 * at, ".size": 8, ".value_kind": kind} for at, kind in enumerate(HIDDEN, 1)]
    kernel: dict[str, Any] = {".name": "kernel", ".symbol": "kernel.kd", ".args": arguments}
    kernel |= {".kernarg_segment_size": 40, ".max_flat_workgroup_size": 1024, ".wavefront_size": 64}
    places = [(kernel, key) for key in kernel] + [(each, key) for each in arguments for key in each]
    with growing_less_than(128 * MIB):
        for holder, key in places:
            for value in (0, 1, (1 << 24) - 1, -1, *HUGE):
                before, holder[key] = holder[key], value
                try:
                    (read,) = read_metadata({"amdhsa.kernels": [copy.deepcopy(kernel)]}).values()
                    launch = Launch(Extent(1 << 30), Extent(64), bytes(8), heap=1 << 40)
                    build_argument_memory(read, launch)
                except CodeObjectError as error:
                    assert str(error)
                holder[key] = before


def test_numbers_of_bundles() -> None:
    plain = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 64, MIB, 4) + b"host" + bytes(64 + MIB)
    overlapping = b"".join(struct.pack("<QQQ", 64, MIB, 4) + b"%4d" % number for number in range(1024))
    with growing_less_than(128 * MIB):
        for at in (24, 32, 40, 48):
            for value in HUGE:
                with pytest.raises(CodeObjectError):
                    read_bundle(change(plain, at, 8, value))
        with pytest.raises(CodeObjectError, match="its entries have"):
            read_bundle(plain[:24] + struct.pack("<Q", 1024) + overlapping + bytes(2 * MIB))


def test_numbers_of_compressed_bundles() -> None:
    packed = zlib.compress(bytes(200 * MIB), 1)
    with growing_less_than(128 * MIB):
        for stated, message in ((MIB, "more bytes than its header states"), (1 << 36, "the limit is")):
            with pytest.raises(CodeObjectError, match=message):
                read_bundle(b"CCOB" + struct.pack("<HHQQQ", 3, 0, 32 + len(packed), stated, 0) + packed)
