"""The struct in Python and the one that a C compiler makes of the convolution's abi.h are the same, byte for byte."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.building.toolchain import find_toolchain
from tilewright.ops.grouped_conv import call

pytestmark = pytest.mark.compile

HEADER = Path(call.__file__).with_name("abi.h")


@pytest.fixture(scope="module", params=["c", "c++"])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """Offset and size of each field, and the size of the whole, as the compiler sees them."""
    folder = tmp_path_factory.mktemp("conv_abi")
    args = "tw_grouped_conv_args"
    lines = "".join(
        f'printf("{name} %zu %zu\\n", offsetof({args}, {name}), sizeof((({args}*)0)->{name}));'
        for name, *_ in call.ConvArgs._fields_
    )
    (folder / "abi.c").write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\n'
        f'int main(void) {{ {lines} printf("all %d %zu\\n", TW_GROUPED_CONV_MAX_NDIM, sizeof({args})); return 0; }}\n'
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
        name: (getattr(call.ConvArgs, name).offset, getattr(call.ConvArgs, name).size)
        for name, *_ in call.ConvArgs._fields_
    }
    assert {**ours, "all": (call.MAX_NDIM, ctypes.sizeof(call.ConvArgs))} == said


def test_no_field_of_the_header_is_left_out(said: dict[str, tuple[int, int]]) -> None:
    """Fields without gaps between them that fill the struct: a forgotten one would leave a hole."""
    whole = said["all"][1]
    places = sorted(place for name, place in said.items() if name != "all")
    ends = [offset + size for offset, size in places]
    assert [offset for offset, _ in places] == [0, *ends[:-1]] and ends[-1] == whole
