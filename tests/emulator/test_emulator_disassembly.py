"""The disassembler's text becomes instructions; what is not understood is refused."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from assembled import assemble

import tilewright.arch
from tilewright.building.code_object import parse_lines
from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.disassembly import disassemble, find_branch_target, parse_line
from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.instruction import EXEC, M0, TTMP, VCC, Instruction, Operand


def one(text: str, *words: int, address: int = 0x1900) -> Instruction:
    return parse_line(DisassembledLine(address, text, words or (0,)))


OPERANDS = {
    "v1": Operand("v", 1),
    "v[2:5]": Operand("v", 2, 4),
    "v[7]": Operand("v", 7),
    "a16": Operand("a", 16),
    "a[0:15]": Operand("a", 0, 16),
    "s101": Operand("s", 101),
    "s[4:7]": Operand("s", 4, 4),
    "ttmp9": Operand("s", TTMP + 9),
    "ttmp[4:5]": Operand("s", TTMP + 4, 2),
    "vcc": Operand("s", VCC, 2),
    "vcc_lo": Operand("s", VCC),
    "vcc_hi": Operand("s", VCC + 1),
    "exec": Operand("s", EXEC, 2),
    "exec_hi": Operand("s", EXEC + 1),
    "m0": Operand("s", M0),
    "flat_scratch": Operand("s", 102, 2),
    "xnack_mask_hi": Operand("s", 105),
    "v3.l": Operand("v", 3, half="l"),
    "v3.h": Operand("v", 3, half="h"),
    "0": Operand("const", value=0),
    "-16": Operand("const", value=-16),
    "0x7fffffff": Operand("const", value=0x7FFFFFFF),
    "1.0": Operand("const", value=1.0),
    "-0.5": Operand("const", value=-0.5),
    "0.15915494": Operand("const", value=0.15915494),
    "lit(0xffffffff)": Operand("const", value=0xFFFFFFFF),
    "-v1": Operand("v", 1, negated=True),
    "|v1|": Operand("v", 1, absolute=True),
    "-|v1|": Operand("v", 1, absolute=True, negated=True),
    "-|s[2:3]|": Operand("s", 2, 2, absolute=True, negated=True),
    "neg(v1)": Operand("v", 1, negated=True),
    "neg(abs(v1))": Operand("v", 1, absolute=True, negated=True),
    "sext(v94)": Operand("v", 94, sign_extended=True),
    "off": Operand("none", name="off"),
    "null": Operand("none", name="null"),
    "src_shared_base": Operand("special", name="src_shared_base"),
    "src_scc": Operand("special", name="src_scc"),
    "hwreg(HW_REG_MODE, 4, 2)": Operand("word", name="hwreg(HW_REG_MODE, 4, 2)"),
    "sendmsg(MSG_DEALLOC_VGPRS)": Operand("word", name="sendmsg(MSG_DEALLOC_VGPRS)"),
}


@pytest.mark.parametrize("text", OPERANDS)
def test_every_form_of_an_operand(text: str) -> None:
    assert one(f"s_any {text}").operands == (OPERANDS[text],)
    assert one(f"s_any s0, {text}, v[0:1] offset:8").operands[1] == OPERANDS[text]


@pytest.mark.parametrize("text", ["v256", "v[5:4]", "s[100:140]", "ttmp16", "1.5.5", "|v1", "[v1]", "v1.x", "-", "$"])
def test_other_forms_are_refused_by_name(text: str) -> None:
    with pytest.raises(UnknownInstructionFault) as caught:
        one(f"s_any {text}")
    assert f"'{text}'" in caught.value.what
    assert caught.value.place.address == 0x1900
    assert caught.value.place.instruction == f"s_any {text}"


@pytest.mark.parametrize(
    ("text", "count", "modifiers"),
    [
        ("buffer_load_dwordx4 v[90:93], v3, s[4:7], 0 offen offset:128", 4, {"offen": True, "offset": 128}),
        ("buffer_load_dword v2, s[8:11], 0 offen offset:16 lds", 3, {"offen": True, "offset": 16, "lds": True}),
        ("global_load_dwordx2 v[6:7], v[0:1], off offset:-24 sc0 sc1", 3, {"offset": -24, "sc0": True, "sc1": True}),
        ("ds_read2st64_b64 v[86:89], v82 offset0:32 offset1:40", 2, {"offset0": 32, "offset1": 40}),
        ("buffer_wbl2 sc1", 0, {"sc1": True}),
        ("global_inv scope:SCOPE_DEV", 0, {"scope": "SCOPE_DEV"}),
        ("global_load_b128 v[0:3], v4, s[0:1] th:TH_LOAD_NT", 3, {"th": "TH_LOAD_NT"}),
        (
            "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], s[2:3] op_sel_hi:[1,1,0] neg_lo:[1,0,0]",
            4,
            {"op_sel_hi": (1, 1, 0), "neg_lo": (1, 0, 0)},
        ),
        ("v_bitop3_b32 v8, v26, v28, v72 bitop3:0x36", 4, {"bitop3": 0x36}),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3] cbsz:1 blgp:1", 4, {"cbsz": 1, "blgp": 1}),
        ("v_mul_f32_e64 v0, v1, v2 clamp mul:4", 3, {"clamp": True, "mul": 4}),
        ("v_mov_b32_e32 v1, a0", 2, {}),
        ("v_accvgpr_read_b32 v1, a16", 2, {}),
    ],
)
def test_modifiers(text: str, count: int, modifiers: dict[str, object]) -> None:
    instruction = one(text)
    assert len(instruction.operands) == count
    assert instruction.modifiers == modifiers


def test_lanes_of_dpp_and_parts_of_sdwa() -> None:
    dpp = one("v_mov_b32_dpp v0, v1 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf bound_ctrl:1")
    assert (dpp.mnemonic, dpp.encoding) == ("v_mov_b32", "dpp")
    assert dpp.modifiers == {"quad_perm": (3, 2, 1, 0), "row_mask": 15, "bank_mask": 15, "bound_ctrl": 1}
    shifted = one("v_add_u32_dpp v0, v1, v2 row_shl:1 row_mask:0xf bank_mask:0xf")
    assert shifted.modifiers["row_shl"] == 1
    mirrored = one("v_add_nc_u32_e64_dpp v0, v1, v2 row_mirror row_mask:0xf bank_mask:0xf")
    assert (mirrored.mnemonic, mirrored.encoding) == ("v_add_nc_u32", "e64_dpp")
    assert mirrored.modifiers["row_mirror"] is True
    sdwa = one("v_or_b32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:WORD_1")
    assert sdwa.modifiers == {
        "dst_sel": "DWORD", "dst_unused": "UNUSED_PAD", "src0_sel": "BYTE_0", "src1_sel": "WORD_1",
    }  # fmt: skip
    eight = one("v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0] fi:1")
    assert eight.modifiers == {"dpp8": (7, 6, 5, 4, 3, 2, 1, 0), "fi": 1}


def test_a_swizzle_is_the_number_of_its_encoding() -> None:
    named = one('ds_swizzle_b32 v8, v2 offset:swizzle(BITMASK_PERM,"01pip")', 0xD87A_8055 & 0xFFFF_FFFF, 0)
    assert named.modifiers == {"offset": 0x8055}


def test_two_instructions_in_one() -> None:
    both = one("v_dual_mov_b32 v18, v17 :: v_dual_lshlrev_b32 v251, 4, v21", 0, 0)
    assert both.mnemonic == "v_dual_mov_b32"
    assert both.other is not None
    assert both.other.mnemonic == "v_dual_lshlrev_b32"
    assert both.other.operands == (Operand("v", 251), Operand("const", value=4), Operand("v", 21))
    assert both.next_address == both.other.next_address == 0x1908


def test_counters_and_hints_stay_whole() -> None:
    wait = one("s_waitcnt vmcnt(3) lgkmcnt(0)")
    assert wait.operands == (Operand("word", name="vmcnt(3) lgkmcnt(0)"),)
    hint = one("s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_2) | instid1(VALU_DEP_1)")
    assert len(hint.operands) == 1


@pytest.mark.parametrize(("count", "target"), [(1, 0x1908), (0xFFFF, 0x1900), (0x7FFF, 0x1904 + 4 * 0x7FFF)])
def test_branches_know_their_target(count: int, target: int) -> None:
    line = DisassembledLine(0x1900, f"s_cbranch_scc1 {count}", (0xBF850000 | count,))
    assert find_branch_target(line) == target
    assert parse_line(line).operands == (Operand("const", value=target),)
    call = parse_line(DisassembledLine(0x1900, f"s_call_b64 s[30:31], {count}", (0xBA9E0000 | count,)))
    assert call.operands == (Operand("s", 30, 2), Operand("const", value=target))


def test_a_modifier_twice_is_refused() -> None:
    with pytest.raises(UnknownInstructionFault, match="twice"):
        one("buffer_load_dword v0, v1, s[0:3], 0 offen offen")


# Words of every encoding: what LLVM can print, the parser must be able to read.
@pytest.mark.compile
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_a_long_walk_through_the_encodings(arch: str) -> None:
    words = [(first << 23) + second * 0x9E3779B1 & 0xFFFFFFFF for first in range(512) for second in range(12)]
    source = "\n".join(f".long {word:#x}, {word * 3 & 0xFFFFFFFF:#x}" for word in words)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "words.o")
        command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=obj", "-o", str(made)]
        subprocess.run(command, input=source.encode(), check=True)
        text = subprocess.run(["llvm-objdump-22", "-d", str(made)], check=True, capture_output=True, text=True).stdout
    known, unknown = 0, []
    for line in parse_lines(text):
        try:
            known += bool(parse_line(line).mnemonic)
        except UnknownInstructionFault as fault:
            unknown.append(fault)
    assert known > 2000
    assert [str(fault) for fault in unknown if not graphics(str(fault.place.instruction))] == []


def graphics(text: str) -> bool:
    """Images, exports and typed buffers have notations of their own, which compute kernels do not use.

    LLVM marks registers that an encoding may not name with a comment. `scale_offset` is of later GPUs.
    """
    foreign = text.startswith(("image_", "exp", "v_interp", "tbuffer_")) or "_param_load" in text
    return foreign or "/*" in text or "scale_offset" in text


@pytest.mark.compile
def test_a_code_object_is_disassembled_with_its_words() -> None:
    lines = disassemble(assemble("s_mov_b32 s4, 0x12345678\ns_endpgm"), tilewright.arch.load("gfx942"))
    assert [line.text for line in lines[:2]] == ["s_mov_b32 s4, 0x12345678", "s_endpgm"]
    assert lines[0].words == (0xBE8400FF, 0x12345678)
    assert lines[0].size == 8
