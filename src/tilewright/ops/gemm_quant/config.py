"""The config of a GEMM kernel with scales: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import config_fields
from tilewright.ops.block_gemm.fit import PaddedConfig
from tilewright.ops.fields import ChoiceType, ConfigBase, DtypeType, FlagType, config_field
from tilewright.ops.rule_forms import Overlay

# The rows of A and the columns of B that share a scale, by kind of scales of groups. Names have the lines and the
# elements along K of a group, as for torch's and vLLM's block scales.
GROUP_ROWS = {"a1x128": 1, "a1x128_b128x128": 1}
GROUP_COLUMNS = {"b1x128": 1, "b128x128": 128, "a1x128_b128x128": 128}
GROUPED = tuple(dict.fromkeys((*GROUP_COLUMNS, *GROUP_ROWS)))
GROUP_K = 128  # elements along K with one scale
QUANTS = ("tensor", "rowcol", "b1x128", "b128x128", "a1x128", "a1x128_b128x128")
QUANT_DOC = (
    "tensor: one scale for A and one for B; rowcol: one for each row of A and column of B; b1x128: one for 128 "
    "elements along K of a column of B; b128x128: one for 128 x 128 elements of B; a1x128: one for 128 elements along "
    "K of a row of A; a1x128_b128x128: those of a1x128 and of b128x128"
)
DTYPES = ("fp8", "bf8")
OUTPUTS = ("fp16", "bf16", "fp32")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
# CK Tile's kernel passes one LDS buffer to the pipeline: compv4 and comp_async need two, and compv5 has wave groups.
PIPELINES = ("mem", "compv3", "compv6")
SCHEDULERS = ("intrawave", "interwave")
# Fields of config and problem that must be the same.
COMMON_FIELDS = ("quant", "dtype_a", "dtype_b", "dtype_c", "layout")
# The values of fields that other GEMM kernels have.
FIXED: dict[str, Any] = {"epilogue": "cshuffle", "vector": None, "wave_groups": 1, "split_k": False, "num_d": 0}


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one kernel, C = (A·B) · scale_a · scale_b."""

    quant: str = config_field(ChoiceType(QUANTS), QUANT_DOC)
    dtype_a: str = config_field(DtypeType(DTYPES), "element type of A")
    dtype_b: str = config_field(DtypeType(DTYPES), "element type of B")
    dtype_acc: str = config_field(DtypeType(("fp32",)), "type that products are summed in, and of scales")
    dtype_c: str = config_field(DtypeType(OUTPUTS), "element type of C")
    layout: str = config_field(ChoiceType(LAYOUTS), "layouts of A, B and C: r = row-major, c = column-major")
    block: Shape = config_fields.make_block_field()
    waves: Shape = config_fields.make_waves_field()
    mma: Shape = config_fields.make_mma_field()
    pipeline: str = config_fields.make_pipeline_field(PIPELINES)
    scheduler: str = config_fields.make_scheduler_field(SCHEDULERS)
    pad_m: bool = config_field(FlagType(), "M need not be a multiple of the block", tag="padm", default=False)
    pad_n: bool = config_field(FlagType(), "N need not be a multiple of the block", tag="padn", default=False)
    pad_k: bool = config_field(FlagType(), "K need not be a multiple of the block", tag="padk", default=False)
    blocks_per_cu: int = config_fields.make_blocks_per_cu_field()


def view_gemm(config: Config) -> PaddedConfig:
    """A config, complete or partly bound, as that of the GEMM before the scales."""
    return cast("PaddedConfig", Overlay(config, **FIXED))


def count_scale_vector(config: Config, arch: Arch) -> int:
    """Scales of a group's neighbours along K that a lane loads at once: the most that divide those of a step and the
    lane's share (GetABQGlobalVectorLoadSize in gemm_quant/pipeline/gemm_group_quant_utils.hpp). A share may be 0.

    Numbers are powers of two, so that the larger of the vectors of A and B is a multiple of the other.
    """
    along = config.block.k // GROUP_K
    rows, columns = GROUP_ROWS.get(config.quant), GROUP_COLUMNS.get(config.quant)
    lines = [size // group for size, group in ((config.block.m, rows), (config.block.n, columns)) if group]
    lanes = config.waves.m * config.waves.k * arch.wave_size
    shares = [each * along // lanes for each in lines]
    return next((vector for vector in (8, 4, 2) if along % vector == 0 and any(s % vector == 0 for s in shares)), 1)
