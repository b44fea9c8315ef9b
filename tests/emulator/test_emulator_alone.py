"""The emulator works without the rest of Tilewright: using it imports no op."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from assembled import assemble

# What an emulator on its own must not need. The import contract in pyproject.toml has the same list.
REST = ("ops", "codegen", "select", "runtime", "dispatch", "registry", "bench", "learn", "cli")
LIST_REST = f"""
import sys
loaded = {{name.split(".")[1] for name in sys.modules if name.startswith("tilewright.")}}
print(*sorted(loaded & set({REST!r})))
"""
# Writes 7 to the address that it gets.
STORE_SEVEN = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32_e32 v1, 0
  v_mov_b32_e32 v2, 7
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""


def run_program(text: str, *arguments: str) -> list[str]:
    """Run a program in a fresh process; return the lines that it prints."""
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()


def test_list_of_loaded_packages_is_not_always_empty() -> None:
    assert run_program("import tilewright.ops" + LIST_REST) == ["ops"]


def test_public_names_and_the_hip_shim_import_no_op() -> None:
    program = """
import tilewright.emulator, tilewright.emulator.hip_shim.shim
names = [getattr(tilewright.emulator, name) for name in dir(tilewright.emulator)]
"""
    assert run_program(program + LIST_REST) == [""]


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_launch_imports_no_op(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.co"
    path.write_bytes(assemble(STORE_SEVEN, kernarg=8))
    program = """
import sys
from pathlib import Path
from tilewright.arch import load
from tilewright.emulator import EmulatedDevice, Extent, Launch, Memory, MemoryFault, Mode

device = EmulatedDevice(load("gfx942"), Memory(1 << 24))
kernel = device.load(Path(sys.argv[1]).read_bytes()).kernels["kernel"]
out = device.memory.allocate(4, "out")
for address in (out, out + 4):
    launch = Launch(Extent(1), Extent(64), address.to_bytes(8, "little"))
    try:
        counters = device.launch(kernel, launch, Mode.STRICT, engine=sys.argv[2])
        print(device.memory.read(out, 1)[0], counters.global_write_bytes)
    except MemoryFault as fault:
        print(fault.name, fault.place.kernel)
"""
    assert run_program(program + LIST_REST, str(path), engine) == ["7 256", "memory-fault kernel", ""]
