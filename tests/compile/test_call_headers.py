"""The struct in Python and the one that a C compiler makes of the generated header are the same, byte for byte."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.building.toolchain import find_toolchain
from tilewright.ops.call_header import format_header
from tilewright.ops.call_struct import CallStruct
from tilewright.ops.fmha.call import CALL as FMHA
from tilewright.ops.gemm.call import CALL as GEMM
from tilewright.ops.grouped_conv.call import CALL as CONV

pytestmark = pytest.mark.compile


def read_layout(call: CallStruct, language: str, folder: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each member, and the number of members and size of the whole, as the compiler sees them."""
    ((name, header),) = format_header(call).items()
    (folder / name).write_text(header)
    members = [member for member, *_ in call.type._fields_]
    lines = "".join(
        f'printf("{member} %zu %zu\\n", offsetof({call.name}, {member}), sizeof((({call.name}*)0)->{member}));'
        for member in members
    )
    end = f'printf("all %d %zu\\n", {len(members)}, sizeof({call.name}));'
    (folder / "layout.c").write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{name}"\nint main(void) {{ {lines} {end} return 0; }}\n'
    )
    compiler = shutil.which("cc") if language == "c" else None
    command = [compiler or str(find_toolchain().cxx), "-x", language, str(folder / "layout.c")]
    subprocess.run([*command, "-Wall", "-Werror", "-o", str(folder / "layout")], check=True, timeout=120)
    out = subprocess.run([str(folder / "layout")], check=True, capture_output=True, text=True, timeout=60).stdout
    rows = (line.split() for line in out.splitlines())
    return {member: (int(first), int(second)) for member, first, second in rows}


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("call", [GEMM, CONV, FMHA], ids=lambda call: call.op)
def test_every_member_lies_where_the_compiler_puts_it(call: CallStruct, language: str, tmp_path: Path) -> None:
    found = read_layout(call, language, tmp_path)
    fields = {name: getattr(call.type, name) for name, *_ in call.type._fields_}
    ours = {name: (field.offset, field.size) for name, field in fields.items()}
    assert {**ours, "all": (len(fields), ctypes.sizeof(call.type))} == found
