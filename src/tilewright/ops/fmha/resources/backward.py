"""The LDS of gradient kernels, as CK Tile's policies compute it."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import DQ_DK_DV, DTYPES, get_tile

_FP32 = 4
# The least numbers of LSE and of d that trload pipelines keep: one for each lane of a wave (GetSmemSizeLSE).
_TRLOAD_LANES = 64


def lds_bytes(config: Config, arch: Arch) -> int:  # noqa: ARG001
    """The LDS of one work-group; the stages before and after dq_dk_dv use only registers.

    Keys and values go through LDS first, then tiles of queries and of the output gradient use the same memory: see
    GetSmemSize in fmha/pipeline/block_fmha_bwd_pipeline_default_policy.hpp, and in the policy of trload, where tiles
    are stored twice instead of transposed.
    """
    tile = get_tile(config)
    if config.family != DQ_DK_DV or not tile:
        return 0
    types = DTYPES[config.dtype]
    size, bias_size = find_dtype(types.qkv).storage_bytes, find_dtype(types.bias).storage_bytes
    m0, n0, hdim_q, hdim_v = (tile[name] for name in ("m0", "n0", "hdim_q", "hdim_v"))
    k, v, q, d_o = n0 * hdim_q * size, n0 * hdim_v * size, m0 * hdim_q * size, m0 * hdim_v * size
    scores = m0 * n0 * max(find_dtype(types.p).storage_bytes, bias_size if config.bias == "elementwise" else 0)
    if config.pipeline.startswith("trload"):
        rows = max(m0, _TRLOAD_LANES) * _FP32
        return max(k + v, 2 * (q + d_o) + 4 * rows + scores)
    return max(2 * k, v, 2 * (q + d_o) + 2 * m0 * _FP32 + scores)
