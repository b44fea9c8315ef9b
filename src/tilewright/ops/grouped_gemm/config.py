"""The config of a grouped GEMM kernel: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tilewright.arch.spec import Shape
from tilewright.ops.block_gemm import config_fields
from tilewright.ops.block_gemm.fit import PaddedConfig
from tilewright.ops.fields import ChoiceType, ConfigBase, DtypeType, FlagType, config_field
from tilewright.ops.rule_forms import Overlay

# 8-bit operands have a scale for each row of A and each column of B; the others have none.
SCALED = ("fp8", "bf8")
DTYPES = ("fp16", "bf16", *SCALED)
OUTPUTS = ("fp16", "bf16", "fp32")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
# CK Tile's persistent kernel finds the form of its loop on the device. compv4 and comp_async sum 5 steps instead of 3
# there, and compv5 and compv6 have no such form with the headers of 2025-11.
PIPELINES = ("mem", "compv3")
SCHEDULERS = ("intrawave", "interwave")
# Fields of config and problem that must be the same.
COMMON_FIELDS = ("dtype_a", "dtype_b", "dtype_c", "layout")
# The values of fields that other GEMM kernels have.
FIXED: dict[str, Any] = {"vector": None, "wave_groups": 1, "split_k": False, "num_d": 0}


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one kernel, C = A·B for each group. One kernel computes all forms of problems that its
    layout and epilogue allow. 8-bit operands have scales, C = (A·B) · scale_a · scale_b."""

    dtype_a: str = config_field(DtypeType(DTYPES), "element type of A")
    dtype_b: str = config_field(DtypeType(DTYPES), "element type of B")
    dtype_acc: str = config_field(DtypeType(("fp32",)), "type that products are summed in")
    dtype_c: str = config_field(DtypeType(OUTPUTS), "element type of C")
    layout: str = config_field(ChoiceType(LAYOUTS), "layouts of A, B and C: r = row-major, c = column-major")
    block: Shape = config_fields.make_block_field()
    waves: Shape = config_fields.make_waves_field()
    mma: Shape = config_fields.make_mma_field()
    pipeline: str = config_fields.make_pipeline_field(PIPELINES)
    scheduler: str = config_fields.make_scheduler_field(SCHEDULERS)
    epilogue: str = config_fields.make_epilogue_field()
    pad_m: bool = config_field(FlagType(), "M need not be a multiple of the block", tag="padm", default=False)
    pad_n: bool = config_field(FlagType(), "N need not be a multiple of the block", tag="padn", default=False)
    pad_k: bool = config_field(FlagType(), "K need not be a multiple of the block", tag="padk", default=False)
    blocks_per_cu: int = config_fields.make_blocks_per_cu_field()


def view_gemm(config: Config) -> PaddedConfig:
    """A config, complete or partly bound, as that of a plain GEMM."""
    return cast("PaddedConfig", Overlay(config, **FIXED))
