"""Describe foreign kernels for the cost model, by the values in their names.

What names do not tell is as in our own GEMM kernels: instructions for addresses and for a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from research.tensile import Columns
from tilewright.arch import Arch, load
from tilewright.base.errors import choose
from tilewright.ops.cost_model import tiled
from tilewright.ops.cost_model.arithmetic import Number
from tilewright.ops.cost_model.block_gemm import PLAIN_ADDRESSES as CODE
from tilewright.ops.cost_model.cost import Estimate
from tilewright.ops.cost_model.estimate_features import compute_estimate_features

Floats = NDArray[np.float64]

# The most bits that a lane loads at once: buffer_load_dwordx4, ds_read_b128.
ACCESS_BITS = 128.0
# Registers of a lane in addition to sums, pending loads and operands of matrix instructions.
BASE_REGISTERS = 32.0
# The files of GPUs by the number of compute units that tuning tables name. MI308X has the units of its own and all
# else of the gfx942 file; 64 and 96 are not known to be any product, and are taken for gfx942 too.
GPUS = {"304": "gfx942", "256": "gfx950", "80": "gfx942", "64": "gfx942", "96": "gfx942"}
# The type whose matrix rate holds, by bits of an element and by file.
RATES = {
    "gfx942": {16: "fp16", 8: "fp8", 4: "fp8"},
    "gfx950": {16: "fp16", 8: "fp8", 4: "pk_fp4"},
}


def load_gpu(units: int) -> Arch:
    """Load the GPU file for a number of compute units; peak rates scale with it."""
    arch = load(GPUS[choose("number of compute units", str(units), GPUS)])
    share = units / arch.compute.units
    return dataclasses.replace(
        arch,
        compute=dataclasses.replace(arch.compute, units=units),
        peak_tflops={name: peak * share for name, peak in arch.peak_tflops.items()},
    )


def make_tensile_tile(kernels: Columns, arch: Arch) -> tiled.KernelTile:
    """Make the tiles of Tensile's fp16 kernels without transposition: A is contiguous along m, B along k."""
    k, lanes = kernels, 64 * kernels["waves_m"] * kernels["waves_n"]
    one = ((k["block_m"] + k["block_n"]) * k["block_k"] + k["block_n"] * k["pad_b"]) * 2
    fragments = 2 * (k["repeat_m"] + k["repeat_n"]) * np.minimum(k["prefetch"] + 1, k["block_k"] / k["mma_k"])
    return tiled.KernelTile(
        block_m=k["block_m"],
        block_n=k["block_n"],
        block_k=k["block_k"],
        waves_m=k["waves_m"],
        waves_n=k["waves_n"],
        matrix_rate=tiled.matrix_rate(arch, "fp16"),
        vector_a=k["load_width"],
        vector_b=k["load_width"],
        # A is read from LDS along m: several elements at once only if the operands are exchanged.
        read_a=np.where(k["swapped"] == 1, np.maximum(k["width"], 1), 1),
        read_b=k["read_width"],
        inner_a=k["block_m"],
        inner_b=k["block_k"],
        covered=1 - k["one_buffer"],
        # A second buffer starts at a power of two.
        lds_bytes=np.where(k["one_buffer"] == 1, one, one + 2.0 ** np.ceil(np.log2(one))),
        registers=k["block_m"] * k["block_n"] / lanes + one / 4 / lanes + fragments + BASE_REGISTERS,
        step_instructions=CODE.step,
        load_instructions=CODE.load,
        block_instructions=CODE.block,
        shuffled=0.0,
    )


def make_plain_tile(tile: Mapping[str, Number], bits_a: Number, bits_b: Number, rate: Number) -> tiled.KernelTile:
    """Make the tile of a kernel with a known block and waves. We assume contiguous k, two buffers, full vectors."""
    block_m, block_n, block_k = (tile[name] for name in ("block_m", "block_n", "block_k"))
    lanes = 64 * tile["waves_m"] * tile["waves_n"]
    one = (block_m * bits_a + block_n * bits_b) * block_k / 8
    return tiled.KernelTile(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        waves_m=tile["waves_m"],
        waves_n=tile["waves_n"],
        bits_a=bits_a,
        bits_b=bits_b,
        matrix_rate=rate,
        vector_a=ACCESS_BITS / bits_a,
        vector_b=ACCESS_BITS / bits_b,
        read_a=ACCESS_BITS / bits_a,
        read_b=ACCESS_BITS / bits_b,
        inner_a=block_k,
        inner_b=block_k,
        covered=1.0,
        lds_bytes=2 * one,
        registers=block_m * block_n / lanes + one / 4 / lanes + 2 * BASE_REGISTERS,
        step_instructions=CODE.step,
        load_instructions=CODE.load,
        block_instructions=CODE.block,
        shuffled=0.0,
    )


def matrix_rate(arch: Arch, bits: int) -> float:
    """Return the operations per clock of a SIMD for elements with this number of bits."""
    return tiled.matrix_rate(arch, RATES[arch.name][bits])


def estimate_columns(estimate: Estimate, shape: tuple[int, ...]) -> dict[str, Floats]:
    """Return the features from an estimate, each as an array of this shape."""
    return {
        name: np.broadcast_to(np.asarray(value, float), shape)
        for name, value in compute_estimate_features(estimate).items()
    }
