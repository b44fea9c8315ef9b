"""Features of a learned model from sizes, C tiles, the GPU and an estimate. All features are finite."""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number, log2, maximum
from tilewright.ops.cost_model.cost import Estimate, Facts

# Model inputs that distinguish the loops of CK Tile's block GEMM: see `block_gemm.compute_block_inputs`.
LOOP_FLAGS = ("buffers", "interwave", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async")
# Smaller shares of the time are not distinguished.
LEAST_SHARE = 1e-6


def compute_size_features(p: Facts) -> dict[str, Number]:
    """Logarithms of the sizes of a matrix product."""
    return {f"log_{name}": log2(getattr(p, name)) for name in ("m", "n", "k", "batch", "split")}


def compute_block_features(k: Facts, flags: tuple[str, ...]) -> dict[str, Number]:
    """The model inputs of a kernel's C tile, and flags of the kernel by name."""
    return {
        "log_block_m": log2(k.block_m),
        "log_block_n": log2(k.block_n),
        "log_block_k": log2(k.block_k),
        "log_waves": log2(k.waves),
        "waves_m": k.waves_m,
        "mma_m": k.mma_m,
        "mma_k": k.mma_k,
        "registers": k.registers,
        "log_lds_bytes": log2(k.lds_bytes),
        "resident": k.resident,
        "log_step_alone": log2(k.alone),
        "log_step_busiest": log2(k.busiest),
        **{name: getattr(k, name) for name in flags},
    }


def compute_hardware_features(arch: Arch) -> dict[str, Number]:
    """The GPU, for models that are trained on several GPUs."""
    return {
        "log_units": log2(float(arch.compute.units)),
        "log_clock": log2(float(arch.compute.clock_mhz)),
        "log_bandwidth": log2(float(arch.memory.bandwidth_gbs)),
        "log_unit_lds": log2(float(arch.lds.unit_bytes)),
    }


def compute_estimate_features(estimate: Estimate) -> dict[str, Number]:
    """The estimate, the share of each of its terms, and the distribution of the work on the GPU."""
    shape = estimate.shape
    shares = {
        f"share_{name}": log2(maximum(LEAST_SHARE, us / estimate.us))
        for name, us in estimate.terms.items()
        if name != "launch"
    }
    return {
        "log_us": log2(estimate.us),
        **shares,
        "log_tiles": log2(shape["tiles"]),
        "log_blocks": log2(shape["blocks"]),
        "log_rounds": log2(shape["rounds"]),
        "log_steps": log2(shape["steps"]),
        "blocks": shape["blocks"],
        "steps": shape["steps"],
        "last_round": shape["last_round"],
        "fill": shape["fill"],
        "use_m": shape["use_m"],
        "use_n": shape["use_n"],
        "use_k": shape["use_k"],
    }
