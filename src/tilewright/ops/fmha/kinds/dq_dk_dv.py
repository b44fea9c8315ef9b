"""The second stage of backward: gradients of queries, keys and values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilewright.arch.dtypes import find_dtype
from tilewright.ops.fmha.element_types import DTYPES, FP32_BYTES
from tilewright.ops.fmha.kind import Gemm, get_tile, is_small, matrix_instructions, split_triples
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.step_cost import AHEAD, SLOW, StepCost, count_matrix_clocks
from tilewright.ops.fmha.traffic import TensorSizes, Traffic

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.fmha.config import Config

# The least numbers of LSE and of d that trload pipelines keep: one for each lane of a wave (GetSmemSizeLSE).
_TRLOAD_LANES = 64
# Vector instructions, counted as in `step_cost`: for each score of a lane, each query element, once in a step, and
# once.
_SCORE, _QUERY, _STEP, _BLOCK = 17.0 + (SLOW - 1), 2.5, 63.0, 1500.0
_ELEMENTWISE, _ALIBI, _DROPPED, _BIAS = 9.0, 6.0, 14.0, 7.0
# Registers of a lane in addition to the tiles that it holds: the mean remainder of 50 compiled kernels.
_REGISTERS = 80.0


def _compute_lds(config: Config, arch: Arch) -> int:
    """The LDS of one work-group; 0 for a config with an invalid tile.

    Keys and values go through LDS first, then tiles of queries and of the output gradient use the same memory: see
    GetSmemSize in fmha/pipeline/block_fmha_bwd_pipeline_default_policy.hpp, and in the policy of trload, where tiles
    are stored twice instead of transposed.
    """
    tile = get_tile(config)
    if not tile:
        return 0
    types = DTYPES[config.dtype]
    size, bias_size = find_dtype(types.qkv).storage_bytes, find_dtype(types.bias).storage_bytes
    m0, n0, hdim_q, hdim_v = (tile[name] for name in ("m0", "n0", "hdim_q", "hdim_v"))
    k, v, q, d_o = n0 * hdim_q * size, n0 * hdim_v * size, m0 * hdim_q * size, m0 * hdim_v * size
    scores = m0 * n0 * max(find_dtype(types.p).storage_bytes, bias_size if config.bias == "elementwise" else 0)
    if config.pipeline.startswith("trload"):
        rows = max(m0, _TRLOAD_LANES) * FP32_BYTES
        return max(k + v, 2 * (q + d_o) + 4 * rows + scores)
    return max(2 * k, v, 2 * (q + d_o) + 2 * m0 * FP32_BYTES + scores)


def _estimate_step(config: Config, arch: Arch) -> StepCost:
    """Five products: q kᵀ and dO vᵀ again, then dv, dk and dq."""
    tile, types = config.tile, DTYPES[config.dtype]
    m, n, hdim_q, hdim_v = (float(tile[name]) for name in ("m0", "n0", "hdim_q", "hdim_v"))
    waves = math.prod(split_triples(config.waves)[0])
    lanes = waves * arch.wave_size
    size = types.qkv_bytes
    scores, queries = m * n / lanes, m * hdim_q / lanes
    biased = m * n * types.bias_bytes if config.bias == "elementwise" else 0.0
    # trload_qr_qtr_dor has all queries in one tile and steps along the keys.
    by_keys = config.pipeline != parts.WHOLE_HEAD
    rows, walked = (n, m) if by_keys else (m, n)
    per_score = (
        _SCORE
        + _ELEMENTWISE * (config.bias == "elementwise")
        + _ALIBI * (config.bias == "alibi")
        + _DROPPED * config.dropout
        + _BIAS * config.bias_gradient
    )
    # Tiles of queries and of dO are stored twice, once transposed, and read by all waves.
    shared = walked * (hdim_q + hdim_v) * size
    held = rows * (hdim_q + hdim_v) + rows * (2 * hdim_q + hdim_v) * size / FP32_BYTES
    return StepCost(
        block_m=rows,
        block_n=max(hdim_q, hdim_v),
        block_k=walked,
        by_keys=by_keys,
        waves=waves,
        matrix=count_matrix_clocks(
            config, arch, (m * n * (hdim_q + hdim_v), m * n * (hdim_q + hdim_v), m * n * hdim_q)
        ),
        instructions=scores * per_score + queries * _QUERY + _STEP,
        lds_bytes=2 * (1 + waves) * shared + (1 + waves) * m * n * size,
        loaded=((walked, hdim_q * size), (walked, hdim_v * size), (1, biased), (2, walked * FP32_BYTES)),
        added_bytes=m * hdim_q * FP32_BYTES + (biased if config.bias_gradient else 0.0),
        waits=2.0,
        meetings=2.0 if config.pipeline in AHEAD else 7.0,  # s_barrier of their loops
        setup_instructions=_BLOCK,
        registers=_REGISTERS + held / lanes + scores,
    )


def _count_bytes(sizes: TensorSizes) -> Traffic:
    problem = sizes.problem
    read = sizes.operands + (sizes.o * sizes.types.o_bytes + 2 * sizes.per_row)
    sums = problem.dq_parts * sizes.q * FP32_BYTES
    written = sums + sizes.count_kv(sizes.keys) + sizes.bias * problem.bias_gradient
    return read, written + sizes.random_numbers


DQ_DK_DV = parts.make_kind(
    name="dq_dk_dv",
    doc="backward, second stage: gradients of queries, keys and values",
    number=7,
    fields=(
        *("waves", "mma", "pad_hdim_q", "pad_hdim_v", "mask_form", "sink", "bias", "dropout", "store_randval"),
        *("bias_gradient", "deterministic", "max_seqlen_q", "blocks_per_cu"),
    ),
    block=("m0", "n0", "k0", "k1", "k2", "k3", "k4", "hdim_q", "hdim_v"),
    # ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp: q·k, p·do, do·v, ds·q, ds·k.
    gemms=(
        Gemm("m0", "n0", "k0", 0, "hdim_q"),
        Gemm("n0", "hdim_v", "k1", 1, "m0"),
        Gemm("m0", "n0", "k2", 0, "hdim_v"),
        Gemm("n0", "hdim_q", "k3", 1, "m0"),
        Gemm("m0", "hdim_q", "k4", 2, "n0"),
    ),
    pipelines=("kr_ktr_vr", "kr_ktr_vr_iglp", "trload_kr_ktr_vr", parts.WHOLE_HEAD),
    keeps=(*parts.SIZES, *parts.SCORES, *parts.DROPOUT, "store_randval", "bias_gradient", "deterministic"),
    inputs=(*parts.ATTENTION_INPUTS, "lse", "d_o", "d", "seqstart_q", "seqstart_k"),
    outputs=("dq_acc", "dk", "dv", "dbias", "randval"),
    is_gradient=True,
    launcher="DqDkDv",
    launchers=parts.list_launchers("gradients", "dq_dk_dv_kernel", "dq_dk_dv"),
    profiles=("flash", "pytorch", "aiter"),
    lds_bytes=_compute_lds,
    matrix_instructions=matrix_instructions,
    is_small=is_small,
    step=_estimate_step,
    has_scores=True,
    count_bytes=_count_bytes,
    fill_trial=parts.fill_dq_parts,
    wide_inputs=(),
    integer_inputs=True,
    computed_inputs=parts.FORWARD_RESULTS,
    finish_inputs=parts.from_inputs("add_forward_results"),
    reference=parts.from_reference_backward("compute_dq_dk_dv"),
    tolerance=parts.from_tolerance("bound_gradients"),
)
