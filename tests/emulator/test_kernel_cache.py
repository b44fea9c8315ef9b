"""The kernel cache returns the result of lowering, wherever the code object is loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from assembled import assemble

from tilewright.arch import load
from tilewright.emulator.code_object import read_code_object
from tilewright.emulator.device import EmulatedDevice, Module
from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.kernel_cache import KernelCache, identify
from tilewright.emulator.launch import Extent, Launch
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.lower import lower
from tilewright.emulator.native.lowered import LoweredKernel, UnsupportedInstruction
from tilewright.emulator.tools import EmulatorTools

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
# All instructions whose records have an address of the code in memory, and some others.
BODY = """
s_getpc_b64 s[10:11]
s_add_u32 s10, s10, 20
s_addc_u32 s11, s11, 0
s_swappc_b64 s[12:13], s[10:11]
s_call_b64 s[14:15], 0
v_mov_b32 v1, 7
v_add_u32 v1, v0, v1
s_barrier
s_endpgm
"""


def _lower(device: EmulatedDevice, module: Module) -> LoweredKernel | UnsupportedInstruction:
    kernel = module.kernels["kernel"]
    return lower(kernel.program, kernel.code, kernel.descriptor.entry, kernel.descriptor.vgprs)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_read_for_another_place_equals_one_lowered_there(arch: str, tmp_path: Path) -> None:
    body = BODY if arch.startswith("gfx9") else BODY.replace("v_add_u32", "v_add_nc_u32")
    code = assemble(body.replace("s_barrier\n", "") if arch == "gfx1201" else body, arch)
    device = EmulatedDevice(load(arch), Memory(1 << 24))
    first = device.load(code)
    device.memory.allocate(100000)
    second = device.load(code)
    assert first.base != second.base
    cache, identity = KernelCache(tmp_path), identify(code)
    cache.keep_kernel(identity, first.kernels["kernel"].code, _lower(device, first))
    found = cache.read_kernel(identity, second.kernels["kernel"].code)
    expected = _lower(device, second)
    assert isinstance(found, LoweredKernel) and isinstance(expected, LoweredKernel)
    assert bytes(found.records) == bytes(expected.records)
    assert bytes(found.records) != bytes(_lower(device, first).records)  # type: ignore[union-attr]
    assert bytes(found.permutations) == bytes(expected.permutations)
    assert bytes(found.matrices) == bytes(expected.matrices)
    assert tuple(found.instructions) == tuple(expected.instructions)
    assert (found.count, found.has_atomics) == (expected.count, expected.has_atomics)
    for name in ("index", "addresses", "flops", "barriers"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.classes.keys() == expected.classes.keys()


def test_unknown_and_damaged_files_are_not_read(tmp_path: Path) -> None:
    code = assemble("s_endpgm")
    cache = KernelCache(tmp_path / "kernels")
    assert cache.read_code_object(code) is None
    cache.keep_code_object(read_code_object(code))
    assert cache.read_code_object(code) == read_code_object(code)
    (file,) = cache.folder.iterdir()
    assert (cache.folder.stat().st_mode & 0o777, file.suffix) == (0o700, ".code")
    file.write_bytes(file.read_bytes()[:100])
    assert cache.read_code_object(code) is None


def test_a_device_uses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.emulator import kernel_cache
    from tilewright.emulator.native import library, native_engine

    if library.load_engine() is None:
        pytest.skip("no clang for the native engine")
    monkeypatch.setattr(kernel_cache, "get_given_tools", lambda: EmulatorTools(None, None, None, tmp_path))
    code = assemble("v_mov_b32 v2, 0\nv_mov_b32 v3, 64\nglobal_store_dword v[2:3], v2, off\ns_endpgm")
    launch = Launch(Extent(1), Extent(64), bytes(16))
    said = []
    for _ in range(2):
        device = EmulatedDevice(load("gfx942"), Memory(1 << 24))
        with pytest.raises(MemoryFault) as fault:
            device.launch(device.load(code).kernels["kernel"], launch, engine="native")
        said.append(fault.value.place)
    assert said[0] == said[1] and "global_store_dword" in str(said[0])
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".code", ".kernel"]
    assert native_engine.find_kernel_cache() == KernelCache(tmp_path)
