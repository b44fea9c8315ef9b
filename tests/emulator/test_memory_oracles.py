"""Loads and stores of single elements, and copies of accumulators, compared with bytes in Python."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import LANES, assemble

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
ROUNDS = [1, pytest.param(200, marks=pytest.mark.deep)]
_WAITS = {"lgkm": "s_waitcnt lgkmcnt(0)", "vm": "s_waitcnt vmcnt(0)"}
_GFX12_WAITS = {"lgkm": "s_wait_dscnt 0x0\n  s_wait_kmcnt 0x0", "vm": "s_wait_loadcnt 0x0"}

# v[4:5] and v[6:7] have 16 bytes of each lane, v8 and v9 become its 8 bytes of output. v2 is 4 times the lane.
_START = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  v_lshlrev_b32 v2, 2, v0
  v_lshlrev_b32 v3, 3, v0
  WAIT_lgkm
  global_load_dwordx4 v[4:7], v1, s[6:7]
  WAIT_vm
"""
_END = """
  WAIT_vm
  global_store_dwordx2 v3, v[8:9], s[4:5]
  s_endpgm
"""


def run_lanes(
    gpu: str, text: str, given: bytes, *, lds: int = 0, private: int = 0, accumulators: int = 0
) -> list[np.ndarray]:
    """The output of each lane as bytes, from both engines in both modes."""
    waits = _GFX12_WAITS if gpu == "gfx1201" else _WAITS
    body = _START + text + _END
    for name, wait in waits.items():
        body = body.replace(f"WAIT_{name}", wait)
    directives = "\n  .amdhsa_enable_private_segment 1" if private else ""
    code = assemble(body, gpu, lds=lds, private=private, accumulators=accumulators, directives=directives)
    made = []
    for engine, mode in (("numpy", Mode.FAST), ("native", Mode.FAST), ("native", Mode.STRICT)):
        memory = Memory(1 << 22)
        device = EmulatedDevice(tilewright.arch.load(gpu), memory)
        (kernel,) = device.load(code).kernels.values()
        size = 8 * LANES[gpu]
        output, source = memory.allocate(size, "output"), memory.allocate(len(given), "source")
        memory.fill(output, 0, size)
        memory.write(source, given)
        arguments = output.to_bytes(8, "little") + source.to_bytes(8, "little")
        device.launch(kernel, Launch(Extent(1), Extent(LANES[gpu]), arguments), mode, engine=engine)
        made.append(np.frombuffer(memory.read(output, size), np.uint8).reshape(-1, 8))
    return made


def make_source(gpu: str, round_: int) -> tuple[bytes, np.ndarray]:
    given = np.random.default_rng(round_).bytes(16 * LANES[gpu])
    return given, np.frombuffer(given, np.uint8).reshape(-1, 16)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_small_elements_of_memory(gpu: str, rounds: int) -> None:
    """global_load_ubyte and global_load_ushort fill the rest of the register with zeros."""
    text = "  global_load_ubyte v8, v1, s[6:7] offset:5\n  global_load_ushort v9, v1, s[6:7] offset:10\n"
    for round_ in range(rounds):
        given, rows = make_source(gpu, round_)
        want = np.zeros((len(rows), 8), np.uint8)
        want[:, 0], want[:, 4:6] = rows[:, 5], rows[:, 10:12]
        for made in run_lanes(gpu, text, given):
            assert np.array_equal(made, want)


@pytest.mark.parametrize("gpu", GPUS)
def test_three_dwords_of_a_lane(gpu: str) -> None:
    """global_store_dwordx3 of half of the lanes, one after another, and nothing behind them."""
    half = LANES[gpu] // 2
    active, mask = ("exec", "s_mov_b64") if gpu.startswith("gfx9") else ("exec_lo", "s_mov_b32")
    text = f"  v_mul_u32_u24 v10, 12, v0\n  {mask} {active}, {(1 << half) - 1:#x}\n"
    text += "  global_store_dwordx3 v10, v[4:6], s[4:5]\n  s_endpgm\n"
    given, rows = make_source(gpu, 0)
    want = rows[:half, :12].tobytes().ljust(8 * LANES[gpu], b"\0")
    for made in run_lanes(gpu, text, given):
        assert made.tobytes() == want


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_two_elements_of_the_lds(gpu: str, rounds: int) -> None:
    """ds_write2st64_b64: its offsets count 64 elements of 8 bytes, from the address of the lane."""
    text = ""
    for first, second in ((0, 1), (2, 1)):
        text += f"  ds_write2st64_b64 v3, v[4:5], v[6:7] offset0:{first} offset1:{second}\n"
    # What the second write left at 0, 512 and 1024: element 0, then the second data, then the first.
    text += "  WAIT_lgkm\n  ds_read_b64 v[8:9], v3 offset:PLACE\n  WAIT_lgkm\n"
    for round_ in range(rounds):
        given, rows = make_source(gpu, round_)
        for place, part in ((0, rows[:, :8]), (512, rows[:, 8:]), (1024, rows[:, :8])):
            for made in run_lanes(gpu, text.replace("PLACE", str(place)), given, lds=2048):
                assert np.array_equal(made, part), place


@pytest.mark.parametrize("gpu", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_upper_halves_in_private_memory(gpu: str, rounds: int) -> None:
    """scratch_store_short_d16_hi stores bits 16 to 31; scratch_load_short_d16 keeps these of its register."""
    text = "  scratch_store_dwordx2 off, v[4:5], off\n  scratch_store_short_d16_hi off, v6, off offset:2\n"
    text += "  v_mov_b32 v9, v7\n  WAIT_vm\n" + ("  s_waitcnt_vscnt null, 0x0\n" if gpu == "gfx1100" else "")
    text += "  s_wait_storecnt 0x0\n" if gpu == "gfx1201" else ""
    text += "  scratch_load_dword v8, off, off\n  scratch_load_short_d16 v9, off, off offset:2\n"
    for round_ in range(rounds):
        given, rows = make_source(gpu, round_)
        want = np.zeros((len(rows), 8), np.uint8)
        want[:, :2], want[:, 2:4] = rows[:, 0:2], rows[:, 10:12]
        want[:, 4:6], want[:, 6:8] = rows[:, 10:12], rows[:, 14:16]
        for made in run_lanes(gpu, text, given, private=16):
            assert np.array_equal(made, want)


@pytest.mark.parametrize("gpu", ["gfx90a", "gfx942", "gfx950"])
def test_copies_of_accumulators(gpu: str) -> None:
    """v_accvgpr_mov_b32 copies all bits in active lanes, and leaves its source."""
    text = "  v_accvgpr_write_b32 a0, v4\n  v_accvgpr_write_b32 a1, v5\n  s_mov_b64 exec, 0xff\n"
    text += "  v_accvgpr_mov_b32 a1, a0\n  s_mov_b64 exec, -1\n"
    text += "  v_accvgpr_read_b32 v8, a0\n  v_accvgpr_read_b32 v9, a1\n"
    given, rows = make_source(gpu, 0)
    want = rows[:, :8].copy()
    want[:8, 4:] = rows[:8, :4]
    for made in run_lanes(gpu, text, given, accumulators=4):
        assert np.array_equal(made, want)
