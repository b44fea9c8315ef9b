"""Matrix instructions as LLVM's assembler and disassembler know them, and run as code objects."""

from __future__ import annotations

import itertools
import re
import subprocess

import numpy as np
import pytest
from assembled import LANES, assemble
from matrix_model import ARCHES

from tilewright.emulator.matrix.shapes import MatrixShape, list_shapes

pytestmark = pytest.mark.compile

PAIRS = [f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8")]


def candidates(matrix: str) -> list[str]:
    """Everything that could be the name of a dense matrix instruction. The assembler is slow at unknown names."""
    if matrix == "wmma":
        types = ["f16", "bf16", "iu8", "iu4", *PAIRS]
        results, depths = ("f32", "f16", "bf16", "i32"), (4, 8, 16, 32, 64, 128)
        return [f"v_wmma_{result}_16x16x{k}_{kind}" for result in results for k in depths for kind in types]
    floats = ["f32", "f16", "bf16", "bf16_1k", "xf32", "f8f6f4", *PAIRS]
    kinds = [*(("f32", kind) for kind in floats), ("i32", "i8"), ("f64", "f64")]
    blocks = {"32x32": "_2b", "16x16": "_4b", "4x4": "_16b"}
    names = ["v_mfma_f64_4x4x4_4b_f64"]
    for (result, kind), mn, k in itertools.product(kinds, blocks, (1, 2, 4, 8, 16, 32, 64, 128)):
        names += [f"v_mfma_{result}_{mn}x{k}{between}{kind}" for between in ("", "_", f"{blocks[mn]}_")]
    return [*names, *(name.replace("mfma", "mfma_scale") for name in names if name.endswith("_f8f6f4"))]


def complaints(arch: str, lines: list[str]) -> dict[int, str]:
    """What the assembler says against lines, by their number."""
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=null"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    found = re.finditer(r"^<stdin>:(\d+):\d+: error: (.*)$", done.stderr, re.MULTILINE)
    return {int(match[1]) - 1: match[2] for match in reversed(list(found))}


def text_of(name: str, shape: MatrixShape, doubled: int | None = None, files: str = "vvvv") -> str:
    """An instruction with the registers that its shape says; the operand of that number has twice as many."""
    counts = [shape.count_registers(operand) for operand in ("d", "a", "b", "d")]
    operands = []
    for at, (file, start, count) in enumerate(zip(files, (0, 64, 96, 128), counts, strict=True)):
        last = start + count * (2 if at == doubled else 1) - 1
        operands.append(f"{file}[{start}:{last}]" if last > start else f"{file}{start}")
    scales = ", v192, v193 op_sel_hi:[0,0,0]" if shape.scaled else ""
    return f"{name} {', '.join(operands)}{scales}"


@pytest.mark.parametrize("arch", ARCHES)
def test_the_assembler_knows_the_same_instructions(arch: str) -> None:
    names = candidates(ARCHES[arch].matrix)
    said = complaints(arch, names)
    # A name that exists is refused for its missing operands.
    exist = {name for at, name in enumerate(names) if "too few operands" in said[at]}
    assert exist == set(list_shapes(ARCHES[arch].family))


@pytest.mark.parametrize("arch", ARCHES)
def test_the_assembler_wants_the_same_numbers_of_registers(arch: str) -> None:
    known = list_shapes(ARCHES[arch].family)
    files = "avva" if arch == "gfx908" else "vvvv"  # MI100 accumulates in registers of their own
    right = [text_of(name, shape, files=files) for name, shape in known.items()]
    assert complaints(arch, right) == {}
    wrong = [text_of(name, shape, at, files) for name, shape in known.items() for at in range(4)]
    assert len(complaints(arch, wrong)) == len(wrong)


@pytest.mark.parametrize("formats", [(0, 1), (2, 4), (4, 3), (3, 0)])
def test_the_assembler_wants_registers_for_the_formats(formats: tuple[int, int]) -> None:
    kinds = ("fp8", "bf8", "fp6", "bf6", "fp4")
    known = {name: shape for name, shape in list_shapes("cdna4").items() if shape.a == "f8f6f4"}
    first, second = formats
    lines = [
        f"{text_of(name, shape.replace_formats(kinds[first], kinds[second]))} cbsz:{first} blgp:{second}"
        for name, shape in known.items()
    ]
    assert complaints("gfx950", lines) == {}


@pytest.mark.parametrize("arch", LANES)
def test_all_instructions_in_one_kernel(arch: str) -> None:
    """Every spelling, assembled, disassembled, translated and run on registers that were never written."""
    from launched import launch

    from tilewright.emulator.launch import Extent

    known = list_shapes(ARCHES[arch].family)
    body = "\n".join([*(text_of(name, shape) for name, shape in known.items()), "s_endpgm"])
    code = assemble(body, arch, vgprs=200)
    outcome = launch(code, arch, block=Extent(3 * LANES[arch]))
    assert outcome.counters.matrix_flops == 3 * sum(shape.flops for shape in known.values())


@pytest.mark.parametrize("arch", LANES)
def test_a_product_of_a_kernel(arch: str) -> None:
    """A[i][k] = 2, B[k][j] = lane's number mod 8: D[i][j] = 2 · k · (j mod 8) + 1 in every row i."""
    from launched import launch

    from tilewright.emulator.launch import Extent

    known = list_shapes(ARCHES[arch].family)
    name = next(name for name, shape in known.items() if (shape.m, shape.a, shape.result) == (16, "f16", "f32")
                and shape.blocks == 1)  # fmt: skip
    shape = known[name]
    a, b = shape.count_registers("a"), shape.count_registers("b")
    body = "\n".join(
        [
            "s_load_dwordx2 s[8:9], s[0:1], 0x0",
            f"v_and_b32 v1, {LANES[arch] - 1}, v0",
            "v_and_b32 v2, 7, v1",
            "v_cvt_f32_u32 v2, v2",
            "v_cvt_f16_f32 v2, v2",
            "v_and_b32 v2, 0xffff, v2",
            "v_lshlrev_b32 v3, 16, v2",
            "v_or_b32 v2, v2, v3",
            *(f"v_mov_b32 v{64 + at}, 0x40004000" for at in range(a)),
            *(f"v_mov_b32 v{96 + at}, v2" for at in range(b)),
            f"{name} v[16:{15 + shape.count_registers('d')}], v[64:{63 + a}], v[96:{95 + b}], 1.0",
            "s_nop 15",
            "s_nop 15",
            "v_lshlrev_b32 v4, 2, v1",
            "s_waitcnt lgkmcnt(0)" if arch != "gfx1201" else "s_wait_kmcnt 0x0",
            "global_store_dword v4, v17, s[8:9]",
            "s_endpgm",
        ]
    )
    code = assemble(body, arch, vgprs=200)
    outcome = launch(code, arch, block=Extent(LANES[arch]), words=LANES[arch])
    columns = np.arange(LANES[arch]) % 16
    assert np.array_equal(outcome.output.view(np.float32), 2 * shape.k * (columns % 8) + 1)
