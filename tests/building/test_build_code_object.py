from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import TilewrightError, ToolchainError
from tilewright.building.code_object import (
    parse_disassembly,
    parse_metadata,
    parse_notes,
    parse_symbols,
)
from tilewright.building.disassembled import DisassembledInstruction

# `llvm-readelf-22 --notes` of a kernel with 158 VGPRs and 14 AGPRs, and of CK's flush_cache.
NOTES = """\
Displaying notes found in: .note
  Owner                Data size \tDescription
  AMDGPU               0x00000225\tNT_AMDGPU_METADATA (AMDGPU Metadata)
    AMDGPU Metadata:
        ---
amdhsa.kernels:
  - .agpr_count:     14
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
    .group_segment_fixed_size: 1024
    .kernarg_segment_align: 8
    .kernarg_segment_size: 12
    .language:       OpenCL C
    .language_version:
      - 2
      - 0
    .max_flat_workgroup_size: 64
    .name:           acc
    .private_segment_fixed_size: 16
    .sgpr_count:     20
    .sgpr_spill_count: 1
    .symbol:         acc.kd
    .uniform_work_group_size: 1
    .uses_dynamic_stack: false
    .vgpr_count:     174
    .vgpr_spill_count: 2
    .wavefront_size: 64
  - .agpr_count:     0
    .args:           []
    .group_segment_fixed_size: 0
    .kernarg_segment_size: 0
    .max_flat_workgroup_size: 1024
    .name:           'y'
    .private_segment_fixed_size: 0
    .sgpr_count:     6
    .sgpr_spill_count: 0
    .vgpr_count:     7
    .vgpr_spill_count: 0
    .wavefront_size: 64
amdhsa.target:   'amdgcn-amd-amdhsa--gfx942:sramecc+'
amdhsa.version:
  - 1
  - 2
...

"""
SYMBOLS = """\

Symbol table '.dynsym' contains 4 entries:
   Num:    Value          Size Type    Bind   Vis       Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT   UND \n\
     1: 0000000000001600    12 FUNC    GLOBAL PROTECTED   7 k
     2: 0000000000000540    64 OBJECT  GLOBAL PROTECTED   6 k.kd
     3: 0000000000001700 0x10 FUNC    LOCAL  DEFAULT     7 helper

Symbol table '.symtab' contains 3 entries:
   Num:    Value          Size Type    Bind   Vis       Ndx Name
     1: 0000000000000006     0 NOTYPE  LOCAL  DEFAULT   ABS k.num_vgpr
     2: 0000000000002b00     0 NOTYPE  LOCAL  HIDDEN      8 _DYNAMIC
"""
DISASSEMBLY = """\

k.co:\tfile format elf64-amdgpu

Disassembly of section .text:

0000000000001600 <k>:
\ts_load_b96 s[0:2], s[0:1], 0x0                             // 000000001600: F400A000 F8000000
\ts_delay_alu instid0(VALU_DEP_2) | instskip(SKIP_1) | instid1(VALU_DEP_1)// 000000001608: BF8700A2
\ts_code_end                                                 // 00000000160C: BF9F0000
\t...

0000000000001700 <helper>:
\tv_dual_mov_b32 v3, v2 :: v_dual_sub_f32 v0, v0, v4// 000000001700: C88A0702 03000900 32A5705F

0000000000001708 <inner>:
\ts_cbranch_execz 38                                         // 00000000170C: BFA50026 <k+0xe4>
"""


def test_kernels_of_notes(cdna3: SimpleNamespace) -> None:
    first, second = parse_notes(NOTES, cdna3)
    assert (first.name, first.sgprs, first.kernarg_bytes, first.wave_size) == ("acc", 20, 12, 64)
    assert (first.lds_bytes, first.scratch_bytes, first.max_block_threads) == (1024, 16, 64)
    assert (first.vgpr_spills, first.sgpr_spills) == (2, 1)
    assert (second.name, second.vgprs, second.agprs, second.lds_bytes) == ("y", 7, 0, 0)


@pytest.mark.parametrize(
    ("kind", "vgprs"),
    [("unified", 160), ("separate", 174)],  # 158 rounded up to 160, + 14 AGPRs = 174
)
def test_vgprs_without_agprs(kind: str, vgprs: int) -> None:
    arch = SimpleNamespace(name="gfx942", registers=SimpleNamespace(agprs=kind))
    first = parse_notes(NOTES, arch)[0]
    assert (first.vgprs, first.agprs) == (vgprs, 14)


def test_a_gpu_without_agprs_has_no_count() -> None:
    arch = SimpleNamespace(name="gfx1201", registers=SimpleNamespace(agprs="none"))
    text = NOTES.replace("gfx942:sramecc+", "gfx1201")
    text = text.replace("  - .agpr_count:     14\n    .args:", "  - .args:")
    assert parse_notes(text, arch)[0].vgprs == 174


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gfx942:sramecc+", "gfx90a", "is for gfx90a, not for gfx942"),
        (".vgpr_count:     174", ".vgpr_count:     many", r"\.vgpr_count = 'many'"),
        ("    .vgpr_count:     174\n", "", r"\.vgpr_count = None"),
        (".vgpr_count:     174", ".vgpr_count:     3", "contradicts itself"),
        (".name:           acc", ".nam:           acc", "without '.name'"),
        ("amdhsa.kernels:", "amdhsa.nuclei:", "no list 'amdhsa.kernels'"),
        ("        ---\n", "", "0 metadata documents"),
        ("...\n", "", "without its end mark"),
        ("    .sgpr_count:     20", "   .sgpr_count:     20", "does not line up"),
        (".sgpr_count:     20", ".vgpr_count:     20", "a key twice"),
        ("acc.kd", '"acc.kd"', "form that LLVM does not write"),
        ("'y'", "'y", "closing quote"),
        ("      - 2\n      - 0\n", "", "without a value"),
        ("amdhsa.version:\n", "amdhsa version\n", "not 'key: value'"),
    ],
)  # fmt: skip
def test_an_unknown_layout_is_an_error(cdna3: SimpleNamespace, old: str, new: str, says: str) -> None:
    assert old in NOTES
    with pytest.raises(ToolchainError, match=says):
        parse_notes(NOTES.replace(old, new), cdna3)


def test_deep_nesting_is_refused() -> None:
    deep = "".join(f"{'  ' * n}k:\n" for n in range(2000)) + "  " * 2000 + "k: 1\n"
    with pytest.raises(ToolchainError, match="levels"):
        parse_metadata(f"---\n{deep}...\n")
    lists = "".join("    " * n + "- k:\n" for n in range(50)) + "    " * 50 + "k: 1\n"
    with pytest.raises(ToolchainError, match="levels"):
        parse_metadata(f"---\n{lists}...\n")


ARCH = SimpleNamespace(name="gfx942", registers=SimpleNamespace(agprs="unified"))
PIECES = st.sampled_from(
    [
        "---\n",
        "...\n",
        "amdhsa.kernels:\n",
        "  - ",
        "- ",
        "-\n",
        "    ",
        ".name:",
        " x\n",
        "\n",
        ": ",
        "[]\n",
        "'",
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for candidate in (text, f"---\n{text}\n...\n"):
        with contextlib.suppress(TilewrightError):
            parse_notes(candidate, ARCH)


@given(st.data())
def test_a_damaged_note_parses_or_is_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(NOTES) - 1))
    end = data.draw(st.integers(at, min(at + 40, len(NOTES))))
    try:
        kernels = parse_notes(NOTES[:at] + data.draw(st.text(max_size=8)) + NOTES[end:], ARCH)
    except TilewrightError:
        return
    assert all(kernel.vgprs >= 0 for kernel in kernels)


def test_functions_of_symbols() -> None:
    functions = parse_symbols(SYMBOLS)
    assert set(functions) == {"k", "helper"}
    assert (functions["k"].address, functions["k"].size) == (0x1600, 12)
    assert functions["helper"].size == 16
    with pytest.raises(ToolchainError, match="unknown layout"):
        parse_symbols("     1: 0000000000001600 twelve FUNC GLOBAL PROTECTED 7 k")


def test_disassembly_is_cut_to_the_function() -> None:
    code = parse_disassembly(DISASSEMBLY, parse_symbols(SYMBOLS))
    assert code["k"] == (
        DisassembledInstruction(0, "s_load_b96", "s_load_b96 s[0:2], s[0:1], 0x0"),
        DisassembledInstruction(
            8,
            "s_delay_alu",
            "s_delay_alu instid0(VALU_DEP_2) | instskip(SKIP_1) | instid1(VALU_DEP_1)",
        ),
    )
    dual, jump = code["helper"]
    assert dual.mnemonics == ("v_dual_mov_b32", "v_dual_sub_f32")
    assert (jump.offset, jump.mnemonics) == (12, ("s_cbranch_execz",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\ts_nop 0 // 000000001600: BF800000\n", "before any function"),
        ("\tsomething else\n", "unknown layout"),
    ],
)
def test_a_strange_disassembly_is_an_error(text: str, says: str) -> None:
    with pytest.raises(ToolchainError, match=says):
        parse_disassembly(text, parse_symbols(SYMBOLS))


@given(st.text())
def test_any_listing_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(TilewrightError):
        parse_disassembly(text, parse_symbols(text))
