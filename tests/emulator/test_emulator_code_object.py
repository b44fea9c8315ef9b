"""Code objects, their metadata and the bundles they come in."""

from __future__ import annotations

import importlib.util
import struct
import zlib

import pytest
from assembled import LANES, assemble

import tilewright.arch
from tilewright.emulator.bundle import find_code_object, read_bundle, read_bundle_size
from tilewright.emulator.code_object import read_code_object
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.entry_state import build_argument_memory
from tilewright.emulator.faults import CodeObjectError, LaunchFault
from tilewright.emulator.kernel_metadata import Argument, KernelMetadata, read_metadata
from tilewright.emulator.launch import Extent, Launch
from tilewright.emulator.memory import Memory
from tilewright.emulator.msgpack import decode


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x2a", 42),
        (b"\xff", -1),
        (b"\xa3abc", "abc"),
        (b"\xd9\x03abc", "abc"),
        (b"\x92\x01\xc3", [1, True]),
        (b"\xdc\x00\x01\xc0", [None]),
        (b"\x81\xa1k\xcd\x01\x00", {"k": 256}),
        (b"\xde\x00\x01\xa1k\xd1\xff\xfe", {"k": -2}),
        (b"\xce\xff\xff\xff\xff", 2**32 - 1),
        (b"\xcf" + b"\xff" * 8, 2**64 - 1),
        (b"\xcb" + struct.pack(">d", 0.5), 0.5),
    ],
)
def test_metadata_values(data: bytes, value: object) -> None:
    assert decode(data) == value


@pytest.mark.parametrize(
    "data", [b"", b"\xa3ab", b"\x92\x01", b"\x81\x01\x02", b"\xc1", b"\x2a\x2a", b"\xa1\xff", b"\x91" * 99]
)
def test_damaged_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(CodeObjectError):
        decode(data)


def test_a_kernel_of_the_metadata() -> None:
    argument = {".value_kind": "by_value", ".offset": 0, ".size": 12}
    hidden = {".value_kind": "hidden_block_count_x", ".offset": 16, ".size": 4}
    kernel = {
        ".name": "k", ".symbol": "k.kd", ".kernarg_segment_size": 20, ".max_flat_workgroup_size": 256,
        ".wavefront_size": 64, ".args": [argument, hidden],
    }  # fmt: skip
    read = read_metadata({"amdhsa.kernels": [kernel]})["k"]  # type: ignore[list-item, dict-item]
    assert (read.explicit_bytes, read.explicit_room, read.argument_bytes) == (12, 16, 20)
    with pytest.raises(CodeObjectError, match=r"ends at byte 20, but the arguments have 19"):
        read_metadata({"amdhsa.kernels": [{**kernel, ".kernarg_segment_size": 19}]})  # type: ignore[list-item, dict-item]
    with pytest.raises(CodeObjectError, match=r"\.symbol = None"):
        read_metadata({"amdhsa.kernels": [{key: kernel[key] for key in kernel if key != ".symbol"}]})  # type: ignore[list-item]


def metadata(*arguments: Argument) -> KernelMetadata:
    size = max(item.offset + item.size for item in arguments)
    return KernelMetadata("k", "k.kd", arguments, size, 1024, 64)


def test_hidden_arguments_are_filled_in() -> None:
    kernel = metadata(
        Argument("by_value", 0, 8),
        Argument("hidden_block_count_y", 8, 4),
        Argument("hidden_group_size_x", 12, 2),
        Argument("hidden_remainder_x", 14, 2),
        Argument("hidden_grid_dims", 16, 2),
        Argument("hidden_dynamic_lds_size", 20, 4),
        Argument("hidden_hostcall_buffer", 24, 8),
    )
    launch = Launch(Extent(3, 5), Extent(64, 2), b"\x11" * 8, dynamic_lds=512)
    filled = build_argument_memory(kernel, launch)
    assert struct.unpack("<8sIHHHxxIQ", filled) == (b"\x11" * 8, 5, 64, 0, 3, 512, 0)


def test_an_unknown_hidden_argument_is_refused() -> None:
    with pytest.raises(
        CodeObjectError, match=r"'hidden_crystal_ball' is not supported; supported are hidden_grid_dims"
    ):
        build_argument_memory(metadata(Argument("hidden_crystal_ball", 0, 8)), Launch(Extent(1), Extent(64), b""))


TARGETS = {"host-x86_64-unknown-linux-gnu-": b"", "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-": b"\x7fELF-942",
           "hipv4-amdgcn-amd-amdhsa--gfx1100": b"\x7fELF-1100"}  # fmt: skip


def bundle() -> bytes:
    header = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(TARGETS))
    start = len(header) + sum(24 + len(target) for target in TARGETS)
    body = b""
    for target, code in TARGETS.items():
        header += struct.pack("<QQQ", start + len(body), len(code), len(target)) + target.encode()
        body += code
    return header + body


def compressed(version: int, method: int = 0) -> bytes:
    plain = bundle()
    packed = zlib.compress(plain)
    sizes = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}[version]
    total = 8 + struct.calcsize(sizes) + len(packed)
    values = (len(plain), 0) if version == 1 else (total, len(plain), 0)
    return b"CCOB" + struct.pack("<HH", version, method) + struct.pack(sizes, *values) + packed


@pytest.mark.parametrize("data", [bundle(), compressed(1), compressed(2), compressed(3), compressed(2) + b"trailing"])
def test_a_bundle_gives_the_code_of_a_gpu(data: bytes) -> None:
    assert dict(read_bundle(data)) == TARGETS
    assert find_code_object(data, "gfx942") == b"\x7fELF-942"
    assert find_code_object(data, "gfx1100") == b"\x7fELF-1100"
    with pytest.raises(CodeObjectError, match=r"no code for gfx950; it has .*gfx942.*gfx1100"):
        find_code_object(data, "gfx950")


def test_damaged_bundles_are_refused() -> None:
    for data in (bundle(), compressed(2)):
        for size in range(len(data) - 1):
            with pytest.raises(CodeObjectError):
                find_code_object(data[:size], "gfx1100")
    with pytest.raises(CodeObjectError, match="method 7"):
        read_bundle(compressed(2, method=7))
    with pytest.raises(CodeObjectError, match="neither a code object nor a bundle"):
        read_bundle(b"MZ" + bytes(64))


def test_a_bundle_with_zstd_needs_the_module() -> None:
    there = importlib.util.find_spec("zstandard") is not None
    with pytest.raises(CodeObjectError, match="damaged" if there else "pip install zstandard"):
        read_bundle(compressed(2, method=1))


def test_only_a_compressed_bundle_states_its_size() -> None:
    assert read_bundle_size(compressed(2)) == len(compressed(2))
    assert read_bundle_size(bundle()) is None


@pytest.mark.compile
@pytest.mark.parametrize("arch", LANES)
def test_a_code_object_of_each_gpu(arch: str) -> None:
    code = read_code_object(assemble("s_endpgm", arch, kernarg=24))
    assert code.arch == arch
    assert list(code.kernels) == ["kernel"]
    assert code.kernels["kernel"].explicit_bytes == 24
    assert code.kernels["kernel"].wave_size == LANES[arch]
    assert code.symbols["kernel"].kind == "STT_FUNC"
    assert code.read_bytes(code.symbols["kernel"].address, 4)[2:] in (b"\x81\xbf", b"\xb0\xbf")  # s_endpgm
    assert code.relocations == ()


VARIABLE = """s_endpgm
.data
.globl variable
.type variable,@object
.p2align 3
variable: .quad variable+16
.size variable, 8
.text"""


@pytest.mark.compile
def test_addresses_in_data_are_relocated() -> None:
    memory = Memory(1 << 20)
    device = EmulatedDevice(tilewright.arch.load("gfx942"), memory)
    module = device.load(assemble(VARIABLE))
    place = module.find_variable("variable")
    assert place is not None
    address, size = place
    assert size == 8
    assert int.from_bytes(memory.read(address, 8), "little") == address + 16
    assert module.find_variable("kernel") is None
    device.unload(module)


@pytest.mark.compile
def test_a_relocation_of_another_kind_is_refused() -> None:
    with pytest.raises(CodeObjectError, match="'elsewhere', which this code object does not define"):
        read_code_object(assemble("s_endpgm\n.data\n.quad elsewhere\n.text"))


@pytest.mark.compile
def test_a_code_object_for_another_gpu_is_refused() -> None:
    device = EmulatedDevice(tilewright.arch.load("gfx950"), Memory(1 << 20))
    with pytest.raises(CodeObjectError, match="it is for gfx942, but this is an emulated gfx950"):
        device.load(assemble("s_endpgm"))


@pytest.mark.compile
@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (Launch(Extent(1), Extent(1025), bytes(16)), "1025 threads per work-group; the kernel allows 1024"),
        (Launch(Extent(0), Extent(64), bytes(16)), "grid is 0 x 1 x 1"),
        (
            Launch(Extent(1, 2**26), Extent(1, 64), bytes(16)),
            "4294967296 threads along y; a launch has at most 4294967295",
        ),
        (Launch(Extent(1), Extent(64), bytes(15)), "15 bytes of arguments; the kernel takes 16"),
        (Launch(Extent(1), Extent(64), bytes(17)), "17 bytes of arguments; the kernel takes 16"),
        (Launch(Extent(1), Extent(64), bytes(16), 65536), r"65792 bytes of LDS \(256 of the kernel and 65536"),
    ],
)
def test_launches_that_the_kernel_does_not_allow(launch: Launch, message: str) -> None:
    device = EmulatedDevice(tilewright.arch.load("gfx942"), Memory(1 << 20))
    kernel = device.load(assemble("s_endpgm", lds=256)).kernels["kernel"]
    with pytest.raises(LaunchFault, match=message):
        device.launch(kernel, launch)
