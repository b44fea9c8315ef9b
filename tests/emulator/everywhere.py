"""A few instructions in one wave on both engines, fast, strict and turned. All leave the same memory, or fail alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from assembled import LANES, assemble

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.faults import Fault
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

MODES = ((Mode.FAST, False), (Mode.STRICT, False), (Mode.STRICT, True))
RUNS = [(engine, mode, turned) for engine in ("numpy", "native") for mode, turned in MODES]
_ADDRESS = re.compile("0x[0-9a-f]+")  # memory begins elsewhere in each run
SPARE = 4096  # bytes of the output behind those of the lanes
_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
_WAITS = {
    "gfx1100": f"{_WAIT}\n  s_waitcnt_vscnt null, 0x0",
    "gfx1201": "s_wait_loadcnt 0x0\n  s_wait_storecnt 0x0\n  s_wait_dscnt 0x0\n  s_wait_kmcnt 0x0",
}
# v[4:7] are 16 bytes of each lane, and so are v[8:11] at the end. v0 is the lane; v1, v2 and v3 are 16, 4 and 8 times
# that. s[4:5] is the address of the output, s[6:7] that of the input.
_BODY = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  v_lshlrev_b32 v2, 2, v0
  v_lshlrev_b32 v3, 3, v0
  WAIT
  global_load_dwordx4 v[4:7], v1, s[6:7]
  v_mov_b32 v8, 0
  v_mov_b32 v9, 0
  v_mov_b32 v10, 0
  v_mov_b32 v11, 0
  WAIT
  {text}
  WAIT
  global_store_dwordx4 v1, v[8:11], s[4:5]
  s_endpgm
"""


@dataclass(frozen=True)
class Outcome:
    lanes: np.ndarray  # dwords, [lanes, 4]
    spare: np.ndarray  # dwords behind them
    fault: Fault | None


def run_everywhere(
    arch: str, text: str, given: np.ndarray, *, lds: int = 0, private: int = 0, directives: str = ""
) -> Outcome:
    """Run `text` with four dwords of each lane, after checking that all runs agree. WAIT waits for all accesses."""
    code = _assemble(arch, text, lds, private, directives)
    found = [_run(code, arch, given, *how) for how in RUNS]
    first, counters = found[0]
    for other, counted in found[1:]:
        assert _ADDRESS.sub("", str(other.fault)) == _ADDRESS.sub("", str(first.fault))
        assert np.array_equal(other.lanes, first.lanes)
        assert np.array_equal(other.spare, first.spare)
        assert counted == counters
    return first


def run_once(
    arch: str, text: str, given: np.ndarray, engine: str, mode: Mode, *, lds: int = 0, private: int = 0
) -> Outcome:
    """Run `text` once, to compare modes."""
    return _run(_assemble(arch, text, lds, private, ""), arch, given, engine, mode, False)[0]


def _assemble(arch: str, text: str, lds: int, private: int, directives: str) -> bytes:
    body = _BODY.format(text=text.strip()).replace("WAIT", _WAITS.get(arch, _WAIT))
    if private:
        directives += "\n  .amdhsa_enable_private_segment 1"
    return assemble(body, arch, vgprs=80, lds=lds, private=private, directives=directives)


def _run(code: bytes, arch: str, given: np.ndarray, engine: str, mode: Mode, turned: bool) -> tuple[Outcome, object]:
    memory = Memory(1 << 22)
    device = EmulatedDevice(tilewright.arch.load(arch), memory)
    (kernel,) = device.load(code).kernels.values()
    size = 16 * LANES[arch]
    words = np.ascontiguousarray(given, np.uint32)
    output, source = memory.allocate(size + SPARE, "output"), memory.allocate(words.nbytes, "source")
    memory.fill(output, 0, size + SPARE)
    memory.write(source, words.tobytes())
    arguments = output.to_bytes(8, "little") + source.to_bytes(8, "little")
    fault, counters = None, None
    try:
        asked = Launch(Extent(1), Extent(LANES[arch]), arguments)
        counters = device.launch(kernel, asked, mode, detailed=True, engine=engine, turned=turned)
        counters.steps = 0  # what an engine costs, no fact of the kernel
    except Fault as caught:
        fault = caught
    left = np.frombuffer(memory.read(output, size + SPARE), np.uint32)
    return Outcome(left[: size // 4].reshape(-1, 4), left[size // 4 :], fault), counters


def make_words(arch: str, seed: int = 0) -> np.ndarray:
    """Four random dwords of each lane."""
    return np.random.default_rng(seed).integers(0, 2**32, (LANES[arch], 4), dtype=np.uint32)


def make_exec(arch: str, lanes: int) -> str:
    """An instruction that enables lanes by a mask of 32 bits; the upper half of 64 lanes has them, too."""
    if LANES[arch] == 64:
        return f"s_mov_b32 exec_lo, {lanes:#x}\n  s_mov_b32 exec_hi, {lanes:#x}"
    return f"s_mov_b32 exec_lo, {lanes:#x}"
