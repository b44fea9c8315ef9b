"""Run two fused mixtures of experts of the aiter wheel on the emulated device, as they are and corrected.

    python tools/run_aiter_experts.py FOLDER

FOLDER has the code objects by GPU: aiter_meta/hsa of the unpacked wheel. The values are small integers, so the results
must be exact; silu of -32 and less is not 0, but smaller than 1e-11. The kernels lack a barrier, and two of their waits
are too short (docs/evidence.md, "Code of others"), so only the corrected ones are expected to be right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from run_aiter_kernels import MODES, Array, Case, pack, run, to_address
from tilewright.emulator.device import DeviceKernel

TOKENS, EXPERTS, CHOSEN = 20, 3, 2
DIM = INNER = 512  # the tile of these kernels has 32 tokens and 512 inner values
TILE = 32
CLOSE = 1e-11  # silu(-32) is -4e-13

# Of each kernel: the first instruction to replace, in the code of waves 0 and 1, and in that of waves 2 and 3.
KERNELS = {
    "silu/fmoe_bf16_noquantBf16_g1u0_atm_inlv_silu_1tg_32x512.co": (0x5470, 0x8394),
    "gelu/fmoe_bf16_noquantBf16_g1u0_atm_inlv_gelu_1tg_32x512.co": (0x5870, 0x8B94),
}
# Bytes behind the first one, the instruction there, and what replaces it. Two registers are cleared by one instruction,
# which makes room for the barrier.
CORRECTIONS = (
    (0x0, "v_mov_b32_e32 v64, 0", "v_mov_b64_e32 v[64:65], 0"),
    (0x8, "v_mov_b32_e32 v65, 0", "s_waitcnt lgkmcnt(0)"),
    (0x10, "v_mov_b32_e32 v66, 0", "v_mov_b64_e32 v[66:67], 0"),
    (0x18, "v_mov_b32_e32 v67, 0", "s_barrier"),
    (0x214, "s_waitcnt vmcnt(30)", "s_waitcnt vmcnt(26)"),
    (0x398, "s_waitcnt vmcnt(30)", "s_waitcnt vmcnt(28)"),
)


def correct(kernel: DeviceKernel, starts: Sequence[int]) -> DeviceKernel:
    """Return the kernel with the barrier and the longer waits."""
    program = kernel.program
    for start in starts:
        for offset, before, after in CORRECTIONS:
            found = program.lines[start + offset].text.split("//")[0].strip()
            if found != before:
                raise SystemExit(
                    f"expected '{before}' at {start + offset:#x}, found '{found}': another version of aiter?"
                )
            program = program.replace_instruction(start + offset, after)
    return replace(kernel, program=program)


def shuffle(weights: Array) -> Array:
    """Order weights as these kernels read them: tiles of 16 rows and 32 columns, in pieces of 16 bytes."""
    experts, rows, columns = weights.shape
    piece = 16 // weights.dtype.itemsize
    tiles = weights.reshape(experts, rows // 16, 16, columns // 32, 32 // piece, piece)
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 4, 2, 5)).reshape(weights.shape)


def make_case(name: str) -> Case:
    """A launch whose inner values are multiples of 32, where silu and gelu are the value or 0."""
    numbers = np.random.default_rng(0)
    tokens = numbers.integers(-1, 2, (TOKENS, DIM)).astype(np.float32)
    first = np.zeros((EXPERTS, INNER, DIM), np.float32)
    for expert in range(EXPERTS):
        first[expert, np.arange(INNER), numbers.integers(0, DIM, INNER)] = numbers.choice([-32, 32], INNER)
    second = numbers.integers(-1, 2, (EXPERTS, DIM, INNER)).astype(np.float32)
    chosen = np.stack([numbers.permutation(EXPERTS)[:CHOSEN] for _ in range(TOKENS)])
    weights = numbers.choice([0.5, 1.0], (TOKENS, CHOSEN)).astype(np.float32)

    inner = np.maximum(np.einsum("td,eid->tei", tokens, first), 0)
    outer = np.einsum("tei,edi->ted", inner, second)
    want = sum(weights[:, k, None] * outer[np.arange(TOKENS), chosen[:, k]] for k in range(CHOSEN))

    places: list[int] = []
    shares: list[float] = []
    owners: list[int] = []
    for expert in range(EXPERTS):
        mine = [(t, k) for t in range(TOKENS) for k in range(CHOSEN) if chosen[t, k] == expert]
        empty = -len(mine) % TILE
        places += [t | k << 24 for t, k in mine] + [TOKENS | CHOSEN << 24] * empty
        shares += [float(weights[t, k]) for t, k in mine] + [0.0] * empty
        owners += [expert] * ((len(mine) + empty) // TILE)

    bf16 = ml_dtypes.bfloat16
    arrays = [
        np.zeros((TOKENS, DIM), bf16), tokens.astype(bf16), shuffle(first.astype(bf16)),
        np.array([len(places), 0], np.int32), shuffle(second.astype(bf16)), np.array(places, np.uint32),
        np.array(shares, np.float32), np.array(owners, np.int32),
    ]  # fmt: skip

    def arguments(addresses: Sequence[int]) -> bytes:
        out, x, gate, valid, down, ids, scales, experts = (to_address(address) for address in addresses)
        unused = [to_address(0)] * 4  # scales of 8-bit values
        sizes = (DIM, INNER, TOKENS, EXPERTS)
        strides = (DIM * 2, DIM * 2, INNER * 2, DIM * 2, DIM * INNER * 2, DIM * INNER * 2, 0, 0, INNER * 4)
        return pack(out, x, gate, valid, down, *unused, ids, scales, experts, *sizes, *strides, CHOSEN, 0, 1)

    def check(after: Sequence[Array]) -> bool:
        difference = np.abs(after[0].astype(np.float64) - want)
        return bool((difference <= (CLOSE if "silu" in name else 0)).all())

    return Case(Path(name).stem, arrays, arguments, (1, len(owners), 1), check)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with the code objects by GPU: aiter_meta/hsa")
    given = parser.parse_args()
    wrong = 0
    for name, starts in KERNELS.items():
        path, case = given.folder / "gfx942" / "fmoe" / name, make_case(name)
        for label, mode, turned in MODES:
            as_is, _ = run(path, "gfx942", case, mode, turned)
            right, count = run(path, "gfx942", case, mode, turned, partial(correct, starts=starts))
            words = {True: "right", False: "WRONG"}
            print(f"{case.name}, {label}: as it is {words[as_is]}, corrected {words[right]}, {count} instructions")
            wrong += not right
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
