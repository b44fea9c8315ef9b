"""What kernels do wrong is the same fault on both engines."""

from __future__ import annotations

import pytest
from assembled import assemble
from native_runs import run

from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

START = """
  s_load_dwordx2 s[6:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
"""
PICK = "v_cndmask_b32 v1, v1, v2, vcc"  # lane 37 gets v2
# One wave, one lane at fault: then both engines meet the same one first.
FAULTS = {
    "past the end": ("memory-fault", ["v_mov_b32 v2, 0x10000", PICK, "global_store_dword v1, v0, s[6:7]"]),
    "across the end": ("memory-fault", ["v_mov_b32 v2, 0x3ffe", PICK, "global_load_dword v3, v1, s[6:7]"]),
    "far scalar load": ("memory-fault", ["s_load_dword s8, s[6:7], 0x9000"]),
    "crooked scalar load": ("misaligned-access", ["s_add_u32 s6, s6, 2", "s_load_dword s8, s[6:7], 0x0"]),
    "outside LDS": ("lds-fault", ["v_mov_b32 v2, 0x400", PICK, "ds_read_b32 v3, v1"]),
    "crooked atomic": ("misaligned-access", ["v_mov_b32 v2, 6", PICK, "global_atomic_add v1, v0, s[6:7]"]),
    "outside private memory": (
        "memory-fault", ["v_mov_b32 v2, 64", "v_mov_b32 v1, 0", PICK, "scratch_load_dword v3, v1, off"],
    ),
    "unknown descriptor": (
        "unknown-instruction",
        ["s_mov_b32 s9, 0x40000000", "s_mov_b32 s11, -1", "buffer_load_dword v3, off, s[8:11], 0"],
    ),
    "unknown instruction": ("unknown-instruction", ["s_sendmsg sendmsg(MSG_INTERRUPT)"]),
    "trap": ("trap", ["s_trap 2"]),
    "no end": ("bad-jump", []),
    "wild jump": ("bad-jump", ["s_mov_b64 s[8:9], 0", "s_setpc_b64 s[8:9]"]),
    "endless": ("endless-loop", ["again:", "s_branch again"]),
}  # fmt: skip
BARRIER = """
  v_readfirstlane_b32 s8, v0
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 spin
  s_barrier
  s_endpgm
spin:
  s_branch spin
"""
SOME_BLOCKS = """
  s_cmp_lt_u32 s2, 5
  s_cbranch_scc1 good
  v_add_u32 v1, 0x10000, v1
good:
  global_store_dword v1, v0, s[6:7]
  s_endpgm
"""


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", FAULTS)
def test_same_fault(name: str, mode: Mode) -> None:
    kind, body = FAULTS[name]
    end = [] if name == "no end" else ["s_endpgm"]
    text = START + "\n".join(["  v_cmp_eq_u32 vcc, 37, v0", *body, *end, ""])
    code = assemble(text, "gfx942", vgprs=8, lds=1024, private=32)
    settings = {"grid": 1, "block": 64, "limit": 100_000}
    numpy, native = (run(code, "gfx942", engine, mode, **settings).fault for engine in ("numpy", "native"))
    assert numpy is not None
    assert native is not None
    assert native.name == kind
    assert type(native) is type(numpy)
    for part in ("kernel", "address", "instruction", "lane", "block", "wave"):
        assert getattr(native.place, part) == getattr(numpy.place, part), part
    if kind not in ("endless-loop", "memory-fault", "misaligned-access", "unknown-instruction"):
        assert native.what == numpy.what
    elif kind == "memory-fault":
        # Addresses differ from run to run.
        assert native.what.split(":")[-1].split("(")[0] == numpy.what.split(":")[-1].split("(")[0]


@pytest.mark.parametrize("mode", Mode)
def test_barrier_that_some_never_reach(mode: Mode) -> None:
    code = assemble(START + BARRIER, "gfx942", vgprs=8)
    fault = run(code, "gfx942", "native", mode, grid=1, limit=1_000_000).fault
    assert fault is not None
    assert fault.name == "endless-loop"


@pytest.mark.parametrize("mode", Mode)
def test_the_first_work_group_at_fault_is_reported(mode: Mode) -> None:
    """Whatever the threads do."""
    code = assemble(START + SOME_BLOCKS, "gfx942", vgprs=8)
    for _ in range(5):
        fault = run(code, "gfx942", "native", mode, grid=64, block=64).fault
        assert fault is not None
        assert (fault.place.block, fault.place.wave, fault.place.lane) == (5, 0, 0)


@pytest.mark.parametrize("text", ["ds_read_b64_tr_b16 v[2:3], v1", "v_permlane32_swap_b32 v2, v3"])
def test_lanes_that_exec_disables(text: str) -> None:
    """Exchanges between lanes of which no source says what they do for some lanes of a wave."""
    some = f"  s_mov_b64 exec, 0xff\n  {text}\n  s_endpgm\n"
    none = f"  s_mov_b64 exec, 0\n  {text}\n  s_endpgm\n"
    for engine in ("numpy", "native"):
        fault = run(assemble(START + some, "gfx950", vgprs=8, lds=1024), "gfx950", engine, Mode.FAST).fault
        assert fault is not None
        assert "with lanes that exec disables" in fault.what
        if text.startswith("ds_"):
            assert run(assemble(START + none, "gfx950", vgprs=8, lds=1024), "gfx950", engine, Mode.FAST).fault is None
