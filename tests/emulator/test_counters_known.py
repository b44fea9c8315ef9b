"""Counters against what is known beforehand, on both engines."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from assembled import LANES, assemble
from native_runs import Run, run

import tilewright as tw
from built_kernels import built
from tilewright import Registry
from tilewright.emulator.launch import Counters, Mode

pytestmark = pytest.mark.compile

ENGINES = ("numpy", "native")
WHOLE = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1), mma=(16, 16, 16),
    pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
PADDED = dataclasses.replace(WHOLE, pad_m=True, pad_n=True, pad_k=True)


@pytest.fixture(scope="module")
def gemms() -> Registry:
    kernels = tuple(tw.kernel_of(config, "gfx942") for config in (WHOLE, PADDED))
    return Registry(kernels, dict(zip(kernels, built(kernels), strict=True)))


def counted(gemms: Registry, config: object, sizes: tuple[int, int, int], engine: str, mode: Mode) -> Counters:
    """What a launch of the config's kernel counts; its result must be right."""
    m, n, k = sizes
    problem = tw.gemm.Problem(m=m, n=n, k=k, dtype="fp16", layout="rcr")
    numbers = np.random.default_rng(m)
    a, b = (numbers.integers(-2, 3, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    (kernel,) = [kernel for kernel in gemms.kernels if kernel.config == config]
    device = tw.Device("emulated:gfx942")
    with device.emulating(engine=engine, mode=mode), device.recording() as launches:
        c = gemms.run(problem, a, b, device=device, kernel=kernel)
    assert (c == a.astype(np.float64) @ b.astype(np.float64)).all()
    (launch,) = launches
    return launch.counters


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sizes", [(64, 64, 32), (64, 64, 320), (320, 192, 160), (128, 64, 96)])
def test_matrix_flops_of_whole_tiles(gemms: Registry, sizes: tuple[int, int, int], engine: str, mode: Mode) -> None:
    m, n, k = sizes
    counters = counted(gemms, WHOLE, sizes, engine, mode)
    assert counters.matrix_flops == 2 * m * n * k
    # Blocks of 64 × 64 by four waves.
    assert counters.waves == m // 64 * (n // 64) * 4
    assert counters.instructions["matrix"] * 2 * 16 * 16 * 16 == counters.matrix_flops
    # C is written once, in 2 bytes per element.
    assert counters.global_write_bytes == 2 * m * n
    # Each block reads its lines of A and its columns of B, once.
    assert counters.global_read_bytes >= 2 * k * (m * (n // 64) + n * (m // 64))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sizes", [(1, 8, 8), (63, 72, 40), (100, 136, 56), (65, 64, 32), (64, 64, 24)])
def test_matrix_flops_of_padded_tiles(gemms: Registry, sizes: tuple[int, int, int], engine: str) -> None:
    counters = counted(gemms, PADDED, sizes, engine, Mode.FAST)
    m, n, k = (-(-size // block) * block for size, block in zip(sizes, (64, 64, 32), strict=True))
    assert counters.matrix_flops == 2 * m * n * k
    assert counters.waves == m // 64 * (n // 64) * 4


# s[6:7] output, s[8:9] input, v1: bytes from the start for the thread, which copies `size` bytes.
COPY = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  s_lshl_b32 s10, s2, 8
  v_add_u32 v1, s10, v0
  v_mul_u32_u24 v1, {size}, v1
  s_waitcnt lgkmcnt(0)
  {guard}
  global_load_{load} {registers}, v1, s[6:7]
  s_waitcnt vmcnt(0)
  global_store_{store} v1, {registers}, s[4:5]
  s_endpgm
"""
# Bytes, the instructions' endings, and the registers.
WIDTHS = {
    1: ("ubyte", "byte", "v2"),
    2: ("ushort", "short", "v2"),
    4: ("dword", "dword", "v2"),
    8: ("dwordx2", "dwordx2", "v[2:3]"),
    16: ("dwordx4", "dwordx4", "v[2:5]"),
}


def copied(size: int, guard: str, engine: str, mode: Mode) -> Run:
    load, store, registers = WIDTHS[size]
    body = COPY.format(size=size, guard=guard, load=load, store=store, registers=registers)
    return run(assemble(body), "gfx942", engine, mode, grid=3)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", WIDTHS)
def test_bytes_of_a_copy(size: int, engine: str, mode: Mode) -> None:
    counters = copied(size, "", engine, mode).counters
    assert counters is not None
    threads = 3 * 256
    # Each wave reads 16 bytes of arguments besides, with a scalar load.
    waves = threads // 64
    assert (counters.global_read_bytes, counters.global_write_bytes) == (threads * size + 16 * waves, threads * size)
    # A wave's 64 elements lie side by side, in lines of 128 bytes; once for the load, once for the store.
    lines_per_wave = max(64 * size // 128, 1)
    assert counters.cache_lines == 2 * (threads // 64) * lines_per_wave
    assert counters.instructions["global"] == 2 * threads // 64
    assert (counters.lds_read_bytes, counters.lds_write_bytes, counters.matrix_flops) == (0, 0, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_only_active_lanes_count(engine: str) -> None:
    counters = copied(4, "v_cmpx_gt_u32 vcc, 10, v0", engine, Mode.FAST).counters
    assert counters is not None
    # The first ten threads of each of three work-groups, and the arguments of twelve waves.
    assert (counters.global_read_bytes, counters.global_write_bytes) == (120 + 192, 120)
    assert counters.cache_lines == 2 * 3


# Every lane reads `size` bytes at `stride` bytes from its neighbour.
STRIDED = """
  v_and_b32 v0, 0x3ff, v0
  v_mul_u32_u24 v1, {stride}, v0
  {read}_{size} {registers}, v1
  {wait}
  s_endpgm
"""
READ_AND_WAIT = {
    "gfx942": ("ds_read", "s_waitcnt lgkmcnt(0)"),
    "gfx950": ("ds_read", "s_waitcnt lgkmcnt(0)"),
    "gfx1201": ("ds_load", "s_wait_dscnt 0x0"),
}


def conflicts(arch: str, stride: int, size: str, engine: str) -> int:
    registers = {"b32": "v2", "b64": "v[2:3]", "b128": "v[2:5]"}[size]
    read, wait = READ_AND_WAIT[arch]
    body = STRIDED.format(stride=stride, size=size, registers=registers, read=read, wait=wait)
    lanes = LANES[arch]
    done = run(assemble(body, arch, lds=16384), arch, engine, Mode.FAST, grid=1, block=lanes)
    assert done.counters is not None
    assert done.counters.lds_read_bytes == lanes * int(size[1:]) // 8
    return done.counters.bank_conflict_cycles


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arch", "stride", "size", "cycles"),
    [
        # 32 lanes at a time. A stride of 8 dwords has 4 of 32 banks serve 8 lanes each: 7 cycles more, twice.
        ("gfx942", 32, "b32", 14),
        ("gfx942", 4, "b32", 0),
        ("gfx942", 128, "b32", 62),  # all in one bank
        ("gfx942", 0, "b32", 0),  # all the same dword
        ("gfx942", 8, "b64", 0),
        ("gfx942", 16, "b128", 0),
        # gfx950 has 64 banks: 8 of them serve 4 lanes each.
        ("gfx950", 32, "b32", 6),
        ("gfx950", 64, "b32", 14),
        # A wave of 32 lanes is one pass.
        ("gfx1201", 32, "b32", 7),
    ],
)
def test_bank_conflicts(arch: str, stride: int, size: str, cycles: int, engine: str) -> None:
    assert conflicts(arch, stride, size, engine) == cycles
