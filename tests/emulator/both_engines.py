"""A few instructions in one wave, on both engines: registers in, registers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from assembled import LANES, assemble

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

_VGPRS = 128
_PLACE, _NEXT = 126, 127  # vector registers of this file
_GFX12 = {"s_waitcnt lgkmcnt(0)": "s_wait_kmcnt 0x0", "s_waitcnt vmcnt(0)": "s_wait_loadcnt 0x0"}


def _make_body(arch: str, texts: Sequence[str], inputs: Sequence[int], outputs: Sequence[int]) -> str:
    old = arch.startswith("gfx9")
    load, store = ("global_load_dword", "global_store_dword") if old else ("global_load_b32", "global_store_b32")
    add = "v_add_u32" if old else "v_add_nc_u32"
    lines = ["s_load_dwordx4 s[4:7], s[0:1], 0x0" if old else "s_load_b128 s[4:7], s[0:1], 0x0"]
    lines += ["s_waitcnt lgkmcnt(0)", "v_and_b32 v0, 0x3ff, v0", f"v_lshlrev_b32 v{_PLACE}, 2, v0"]
    for number, register in enumerate(inputs):
        lines += [f"{add} v{_NEXT}, {4 * number * LANES[arch]}, v{_PLACE}", f"{load} v{register}, v{_NEXT}, s[6:7]"]
    lines += ["s_waitcnt vmcnt(0)", *texts]
    for number, register in enumerate(outputs):
        lines += [f"{add} v{_NEXT}, {4 * number * LANES[arch]}, v{_PLACE}", f"{store} v{_NEXT}, v{register}, s[4:5]"]
    lines.append("s_endpgm")
    return "\n".join(_GFX12.get(line, line) if arch == "gfx1201" else line for line in lines)


def run_both(
    arch: str,
    texts: Sequence[str],
    inputs: Mapping[int, np.ndarray],
    outputs: Sequence[int],
    *,
    directives: str = "",
) -> list[np.ndarray]:
    """The registers `outputs` as dwords of all lanes, the same on both engines in fast and in strict mode."""
    lanes = LANES[arch]
    body = _make_body(arch, texts, tuple(inputs), outputs)
    code = assemble(body, arch, vgprs=_VGPRS, directives=directives)
    words = [np.broadcast_to(np.asarray(values), lanes).astype(np.uint32) for values in inputs.values()]
    results = []
    for engine, mode in (("numpy", Mode.FAST), ("native", Mode.FAST), ("native", Mode.STRICT)):
        memory = Memory(1 << 22)
        device = EmulatedDevice(tilewright.arch.load(arch), memory)
        (kernel,) = device.load(code).kernels.values()
        size = 4 * lanes * max(len(words), len(outputs), 1)
        out, given = memory.allocate(size, "output"), memory.allocate(size, "input")
        memory.fill(out, 0, size)
        memory.write(given, np.concatenate([*words, np.zeros(0, np.uint32)]).tobytes())
        arguments = out.to_bytes(8, "little") + given.to_bytes(8, "little")
        device.launch(kernel, Launch(Extent(1), Extent(lanes), arguments), mode, engine=engine)
        results.append(np.frombuffer(memory.read(out, size), np.uint32)[: lanes * len(outputs)].reshape(-1, lanes))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    return list(results[0])


def float_words(values: Sequence[float]) -> np.ndarray:
    return np.array(values, np.float32).view(np.uint32)


def fill_lanes(values: Sequence[int] | np.ndarray, arch: str) -> np.ndarray:
    """Values repeated over the lanes of a wave."""
    return np.resize(np.asarray(values, np.uint32), LANES[arch])
