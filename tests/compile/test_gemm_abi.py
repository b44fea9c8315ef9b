"""The struct in Python and the one that a C compiler makes of abi.h are the same, byte for byte."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.building.toolchain import find_toolchain
from tilewright.ops.gemm import call
from tilewright.ops.gemm.config import MAX_D

pytestmark = pytest.mark.compile

HEADER = Path(call.__file__).with_name("abi.h")


@pytest.fixture(scope="module", params=["c", "c++"])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """Offset and size of each field, and the size of the whole, as the compiler sees them."""
    folder = tmp_path_factory.mktemp("abi")
    names = [name for name, *_ in call.GemmArgs._fields_]
    lines = "".join(
        f'printf("{name} %zu %zu\\n", offsetof(tw_gemm_args, {name}), sizeof(((tw_gemm_args*)0)->{name}));'
        for name in names
    )
    (folder / "abi.c").write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\n'
        f'int main(void) {{ {lines} printf("all %d %zu\\n", TW_GEMM_MAX_D, sizeof(tw_gemm_args)); return 0; }}\n'
    )
    compiler = shutil.which("cc") if request.param == "c" else None
    command = [
        compiler or str(find_toolchain().cxx),
        "-x",
        request.param,
        str(folder / "abi.c"),
        "-o",
        str(folder / "abi"),
    ]
    subprocess.run(command, check=True, timeout=120)
    out = subprocess.run([str(folder / "abi")], check=True, capture_output=True, text=True, timeout=60).stdout
    rows = (line.split() for line in out.splitlines())
    return {name: (int(first), int(second)) for name, first, second in rows}


def test_every_field_lies_where_the_compiler_puts_it(said: dict[str, tuple[int, int]]) -> None:
    ours = {
        name: (getattr(call.GemmArgs, name).offset, getattr(call.GemmArgs, name).size)
        for name, *_ in call.GemmArgs._fields_
    }
    assert {**ours, "all": (MAX_D, ctypes.sizeof(call.GemmArgs))} == said


def test_no_field_of_the_header_is_left_out(said: dict[str, tuple[int, int]]) -> None:
    """Fields without gaps between them that fill the struct: a forgotten one would leave a hole."""
    whole = said["all"][1]
    places = sorted(place for name, place in said.items() if name != "all")
    ends = [offset + size for offset, size in places]
    assert [offset for offset, _ in places] == [0, *ends[:-1]] and ends[-1] == whole


def test_a_problem_fills_the_struct() -> None:
    problem = tw.gemm.Problem(
        m=3, n=5, k=7, dtype="fp16", layout="crr", batch=2, k_batch=4, num_d=2, elementwise="MultiDAdd", stride_a=8
    )
    args = call.make_arguments(problem)
    assert (args.size, args.m, args.n, args.k) == (ctypes.sizeof(call.GemmArgs), 3, 5, 7)
    assert (args.stride_a, args.stride_b, args.stride_c, list(args.stride_d[:3])) == (8, 5, 5, [5, 5, 0])
    assert (args.batch, args.k_batch) == (2, 4)
    assert (args.batch_stride_a, args.batch_stride_b, args.batch_stride_c) == (7 * 8, 7 * 5, 3 * 5)
    assert (args.a, args.workspace, args.workspace_size) == (None, None, 0)
