"""Read code objects: sections, symbols, kernels and metadata."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.emulator import msgpack
from tilewright.emulator.descriptor import SIZE as DESCRIPTOR_BYTES
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.hardware import MACHINES
from tilewright.emulator.kernel_metadata import KernelMetadata, read_metadata

_MACHINE = "EM_AMDGPU"
_HSA = 64  # ELFOSABI_AMDGPU_HSA
_ABI_VERSIONS = {2: "4", 3: "5", 4: "6"}  # ELFABIVERSION_AMDGPU_HSA_V4 to V6
_SHARED_OBJECT = "ET_DYN"
_GPU_MASK = 0xFF  # EF_AMDGPU_MACH in e_flags
_GPUS = {number: name for name, number in MACHINES.items()}
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA
_ALLOC, _EXECUTE = 0x2, 0x4  # SHF_ALLOC, SHF_EXECINSTR
_MOST_BYTES = 1 << 30  # limit of a loaded code object: far above real sizes, far below the emulated memory
_RELOCATIONS = {3: "R_AMDGPU_ABS64", 13: "R_AMDGPU_RELATIVE64"}


@dataclass(frozen=True, slots=True)
class LoadSegment:
    """`size` bytes to load at `address`, relative to the load address of the code object. Without `data` they are 0."""

    name: str
    address: int
    size: int
    data: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for a location in the code object."""

    name: str
    address: int
    size: int
    kind: str  # "STT_FUNC", "STT_OBJECT", …


@dataclass(frozen=True, slots=True)
class Relocation:
    """Eight bytes at `address` that are set to the load address plus `addend`."""

    address: int
    addend: int


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A checked code object for one GPU."""

    arch: str
    data: bytes
    sections: tuple[LoadSegment, ...]
    symbols: Mapping[str, Symbol]
    relocations: tuple[Relocation, ...]
    kernels: Mapping[str, KernelMetadata]

    @property
    def extent(self) -> int:
        """Its size in memory, in bytes."""
        return max((section.address + section.size for section in self.sections), default=0)

    def has_code(self, address: int) -> bool:
        """Whether an address is in the code."""
        return any(
            section.executable and section.address <= address < section.address + section.size
            for section in self.sections
        )

    def read_bytes(self, address: int, size: int) -> bytes:
        """Return bytes of one section."""
        for section in self.sections:
            offset = address - section.address
            if offset >= 0 and offset + size <= len(section.data):
                return section.data[offset : offset + size]
        raise CodeObjectError(f"no section has the {size} bytes at {address:#x}")

    def find_descriptor(self, kernel: str) -> tuple[int, bytes]:
        """Return the address and the bytes of a kernel's descriptor."""
        name = self.kernels[kernel].descriptor_symbol
        if name not in self.symbols:
            raise CodeObjectError(f"symbol '{name}', the descriptor of kernel {kernel}, is missing")
        address = self.symbols[name].address
        return address, self.read_bytes(address, DESCRIPTOR_BYTES)


def read_code_object(data: bytes) -> CodeObject:
    """Read the code object in `data`, or raise `CodeObjectError`."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - takes long to import

    try:
        elf = ELFFile(io.BytesIO(data))
        arch = _check_header(elf)
        sections = tuple(_read_segments(elf, len(data)))
        symbols = _read_symbols(elf)
        relocations = tuple(_read_relocations(elf))
        kernels = read_metadata(msgpack.decode(_find_metadata_note(elf)))
        _check_relocations(relocations, sections)
    except CodeObjectError:
        raise
    except Exception as error:  # pyelftools raises exceptions of every kind for damaged files
        raise CodeObjectError(f"it cannot be read as an ELF file: {type(error).__name__}: {error}") from error
    return CodeObject(arch, data, sections, symbols, relocations, kernels)


def _check_header(elf: Any) -> str:
    """Check the ELF header and return the GPU that the code is for."""
    if elf.elfclass != 64 or not elf.little_endian:
        raise CodeObjectError(f"it is an ELF file of {elf.elfclass} bits, but code objects have 64, little-endian")
    header = elf.header
    ident = elf.e_ident_raw
    if ident[7] != _HSA:
        raise CodeObjectError(f"its OS ABI is {ident[7]}, but code objects for HIP have {_HSA} (AMDGPU HSA)")
    if ident[8] not in _ABI_VERSIONS:
        known = ", ".join(f"{number} (version {name})" for number, name in _ABI_VERSIONS.items())
        raise CodeObjectError(f"its ABI version is {ident[8]}; known are {known}")
    if header["e_machine"] != _MACHINE:
        raise CodeObjectError(f"it is for machine {header['e_machine']}, not for AMD GPUs ({_MACHINE})")
    if header["e_type"] != _SHARED_OBJECT:
        raise CodeObjectError(f"it is of type {header['e_type']}, but loadable code objects are {_SHARED_OBJECT}")
    number = header["e_flags"] & _GPU_MASK
    if number not in _GPUS:
        raise CodeObjectError(f"it is for GPU number {number:#x}; known are {', '.join(_GPUS.values())}")
    return _GPUS[number]


def _read_segments(elf: Any, file_bytes: int) -> Iterator[LoadSegment]:
    for section in elf.iter_sections():
        header = section.header
        if not header["sh_flags"] & _ALLOC or header["sh_size"] == 0:
            continue
        address, size = header["sh_addr"], header["sh_size"]
        if address + size > _MOST_BYTES:
            raise CodeObjectError(
                f"section {section.name} reaches to {address + size:#x}; the limit is {_MOST_BYTES:#x}"
            )
        if header["sh_type"] == "SHT_NOBITS":
            data = b""
        elif header["sh_offset"] + size > file_bytes:
            end = header["sh_offset"] + size
            raise CodeObjectError(f"section {section.name} ends at byte {end}, but the file has {file_bytes}")
        else:
            data = section.data()
        yield LoadSegment(section.name, address, size, data, bool(header["sh_flags"] & _EXECUTE))


def _read_symbols(elf: Any) -> Mapping[str, Symbol]:
    """Return the defined symbols with a name. Those of .dynsym are enough: kernels and their descriptors."""
    table = elf.get_section_by_name(".dynsym")
    if table is None:
        raise CodeObjectError("it has no section .dynsym, which names the kernels")
    return {
        symbol.name: Symbol(symbol.name, symbol["st_value"], symbol["st_size"], str(symbol["st_info"]["type"]))
        for symbol in table.iter_symbols()
        if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
    }


def _read_relocations(elf: Any) -> Iterator[Relocation]:
    for section in elf.iter_sections():
        if section.header["sh_type"] not in ("SHT_RELA", "SHT_REL"):
            continue
        symbols = elf.get_section(section.header["sh_link"])
        for entry in section.iter_relocations():
            yield _read_relocation(entry, symbols, section.name)


def _read_relocation(entry: Any, symbols: Any, section: str) -> Relocation:
    number = entry["r_info_type"]
    name = _RELOCATIONS.get(number)
    if name is None or not entry.is_RELA():
        known = ", ".join(_RELOCATIONS.values())
        raise CodeObjectError(f"{section} has an unsupported relocation of kind {number}; supported are {known}")
    if name == "R_AMDGPU_RELATIVE64":
        return Relocation(entry["r_offset"], entry["r_addend"])
    symbol = symbols.get_symbol(entry["r_info_sym"])
    if symbol["st_shndx"] == "SHN_UNDEF":
        raise CodeObjectError(f"{section} refers to '{symbol.name}', which this code object does not define")
    return Relocation(entry["r_offset"], symbol["st_value"] + entry["r_addend"])


def _check_relocations(relocations: tuple[Relocation, ...], sections: tuple[LoadSegment, ...]) -> None:
    for place in relocations:
        inside = (0 <= place.address - one.address <= one.size - 8 for one in sections)
        if not any(inside):
            raise CodeObjectError(f"a relocation is at {place.address:#x}, outside all sections")


def _find_metadata_note(elf: Any) -> bytes:
    for section in elf.iter_sections():
        if section.header["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_type"] == _METADATA_NOTE and note["n_name"] == "AMDGPU":
                return bytes(note["n_descdata"])
    raise CodeObjectError("it has no note with AMD metadata")
