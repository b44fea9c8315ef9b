"""The listing in a code object gives the same instructions as a disassembler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.base.errors import ToolchainError
from tilewright.building import listing
from tilewright.building.disassembled import FunctionSymbol

TEXT = """\t.text
k:
\ts_load_b32 s2, s[0:1], 0x8              ; encoding: [0x80,0x00,0x00,0xf4,0x08,0x00,0x00,0xf8]
\tscratch_load_dword v0, off, off\t; 4-byte Folded Reload ; encoding: [0x01,0x00,0x00,0xdc,0x00,0x00,0x00,0x00]
\ts_add_u32 s4, s4, f@rel32@lo+4          ; encoding: [0x04,0xff,0x04,0x80,A,A,A,A]
\t                                        ;   fixup A - offset: 4, value: f@rel32@lo+4
\t.p2align\t6
.LBB0_2:
\ts_cbranch_scc0 .LBB0_2                  ; encoding: [A,A,0xa1,0xbf]
\t.amdgpu_metadata
---
amdhsa.target: amdgcn-amd-amdhsa--gfx1100
...
\t.end_amdgpu_metadata
"""
NOP = bytes.fromhex("000080bf")
CODE = (
    bytes.fromhex("800000f4080000f8") + bytes.fromhex("010000dc00000000") + bytes.fromhex("04ff048010000000")
    + NOP + NOP + bytes.fromhex("ffffa1bf")
)  # fmt: skip


class Section:
    def __getitem__(self, key: str) -> int:
        return {"sh_addr": 0x100}[key]

    def data(self) -> bytes:
        return CODE


@pytest.fixture
def elf(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elf:
        def get_section_by_name(self, name: str) -> Section | None:
            return Section() if name == ".text" else None

    monkeypatch.setattr(listing, "_open_elf", lambda _: Elf())
    symbol = FunctionSymbol("k", 0x100, len(CODE))
    monkeypatch.setattr(listing, "read_elf_functions", lambda _: {"k": symbol})


@pytest.mark.usefixtures("elf")
def test_instructions_have_addresses_words_and_numbers_for_symbols() -> None:
    lines = listing.list_instructions(b"", TEXT)
    assert [(line.address, line.text) for line in lines] == [
        (0x100, "s_load_b32 s2, s[0:1], 0x8"),
        (0x108, "scratch_load_dword v0, off, off"),
        (0x110, "s_add_u32 s4, s4, 0x10"),
        (0x118, "s_nop 0"),
        (0x11C, "s_nop 0"),
        (0x120, "s_cbranch_scc0 65535"),
    ]
    assert lines[2].words == (0x8004FF04, 0x10)


@pytest.mark.usefixtures("elf")
def test_a_listing_of_other_code_is_an_error() -> None:
    with pytest.raises(ToolchainError, match="does not belong to its code"):
        listing.list_instructions(b"", TEXT.replace("0xa1,0xbf", "0xa2,0xbf"))


def test_metadata() -> None:
    assert listing.find_metadata(TEXT) == "---\namdhsa.target: amdgcn-amd-amdhsa--gfx1100\n...\n"
    assert listing.find_metadata("") == ""


@pytest.mark.usefixtures("elf")
def test_code_without_a_listing(tmp_path: Path) -> None:
    (tmp_path / "k.co").write_bytes(b"")
    with pytest.raises(ToolchainError, match="has no listing of its instructions"):
        listing.read_listing(tmp_path / "k.co")
