"""Kernel libraries and packs run with each version of HIP alone, and with one that torch loaded under another name.

The HIP shim stands in for all of them: it is built with their sonames, or copied to their places.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from scale_calls import ScaleLibrary, in_own_process

from tilewright.building.pack.write import write_pack
from tilewright.building.store.local import Store
from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.hip_shim.shim_library import build_shim

pytestmark = pytest.mark.compile

START = """
import ctypes
import tilewright.emulator.hip_shim.shim as made
import tilewright.emulator.hip_shim.shim_library as library
from tilewright.runtime import hip_library
x = np.arange(200, dtype=np.float32)
"""
RUN = """
device = Device("gpu:1")
for library in (scale, packed):
    assert (library.tripled(device, x) == 3 * x).all()
print(device.load_hip().path)
print(*hip_library.find_mapped_libraries())
"""


@pytest.fixture(scope="module")
def packed(scale: ScaleLibrary, tmp_path_factory: pytest.TempPathFactory) -> ScaleLibrary:
    """The same kernel in a pack."""
    artifact = Store(scale.path.parents[4]).get(scale.path.parent.name)
    assert artifact is not None
    pack = write_pack([artifact], find_toolchain(), tmp_path_factory.mktemp("packs") / "pack")
    return ScaleLibrary(pack.library_path("gfx942"), scale.symbol)


def run_both(scale: ScaleLibrary, packed: ScaleLibrary, start: str) -> list[str]:
    """Run both libraries in a process; return the HIP library of its GPUs, and all that it has."""
    other = f"packed = ScaleLibrary(Path({str(packed.path)!r}), {packed.symbol!r})\n"
    return in_own_process(scale.program(START + other + start + RUN)).splitlines()


@pytest.mark.parametrize("name", ["scale", "packed"])
def test_no_library_names_hip(name: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(name).path
    said = subprocess.check_output([find_toolchain().readelf, "--dynamic", path], text=True)
    assert "NEEDED" in said and "amdhip" not in said
    exported = subprocess.check_output(["nm", "--dynamic", "--defined-only", path], text=True).split()
    assert [name for name in exported if name.startswith(("hip", "__hipR", "__hipP", "tilewright"))] == []


@pytest.mark.parametrize("soname", ["libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"])
def test_each_version_alone(scale: ScaleLibrary, packed: ScaleLibrary, soname: str) -> None:
    build = f"""
library.read_soname = lambda *_: {soname!r}
hip_library.use_gpu_library(made.open_shim().path)
"""
    used, mapped = run_both(scale, packed, build)
    assert used == mapped
    assert Path(used).name == soname


@pytest.mark.parametrize("name", ["libamdhip64.so", "libamdhip64-3f2a9c10.so.7.1", "libthe_hip_of_torch.so"])
def test_the_library_of_torch(scale: ScaleLibrary, packed: ScaleLibrary, tmp_path: Path, name: str) -> None:
    own = tmp_path / "torch" / "lib" / name
    own.parent.mkdir(parents=True)
    own.write_bytes(build_shim(find_toolchain()).read_bytes())
    load = f"""
torch = ctypes.CDLL({str(own)!r})
library.build_shim = lambda *_: Path({str(own)!r})
made.open_shim()  # the emulated GPUs behind it
"""
    used, mapped = run_both(scale, packed, load)
    assert used == mapped == str(own)


def test_an_emulated_device_beside_the_library_of_torch(scale: ScaleLibrary, tmp_path: Path) -> None:
    own = tmp_path / "libthe_hip_of_torch.so"
    own.write_bytes(build_shim(find_toolchain()).read_bytes())
    program = f"""
torch = ctypes.CDLL({str(own)!r})
device = Device("emulated:gfx942")
assert (scale.tripled(device, x) == 3 * x).all()
print(device.load_hip().own_process, *hip_library.find_mapped_libraries())
"""
    assert in_own_process(scale.program(START + program)) == f"True {own}\n"
