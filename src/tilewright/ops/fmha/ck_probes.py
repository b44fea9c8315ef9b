"""The templates of CK Tile's attention that differ between its generations.

Since 2026, masks and traits have sinks, forward kernels read scales from memory instead of taking them as arguments,
gradients keep their sums in a workspace, batch_prefill has pages of several tokens, and kernels compile for RDNA 3.
Launchers pass neutral values for sinks and scales.
"""

from __future__ import annotations

from tilewright.arch.ck_api import CkForm, CkProbe

_FOLDER = "ck_tile/ops/fmha"
_TRAITS = f"{_FOLDER}/pipeline/tile_fmha_traits.hpp"
_GRADIENT_PROBLEM = f"{_FOLDER}/pipeline/block_fmha_bwd_pipeline_problem.hpp"
_PADS = ("kPadSeqLenQ", "kPadSeqLenK", "kPadHeadDimQ", "kPadHeadDimV")
_SCORES = (*_PADS, "kHasLogitsSoftCap", "BiasEnum", "kHasBiasGrad", "kStoreLSE")
_LAUNCH = ("kBlockPerCu", "kSkipMinSeqlenQ")

MASK = CkProbe(
    "fmha_mask",
    f"{_FOLDER}/block/block_masking.hpp",
    (CkForm("window", "2025-11"), CkForm("sinks", "2026-06", text=r"\bGetSinkTileRangeAlongX\b")),
)
TRAITS = CkProbe(
    "fmha_traits",
    _TRAITS,
    (
        CkForm("static_quant", "2025-11", (*_SCORES, "kHasDropout", "kDoFp8StaticQuant", *_LAUNCH)),
        CkForm("quant_scale", "2026-06", (*_SCORES, "kHasDropout", "QScaleEnum", *_LAUNCH, "kHasSink")),
    ),
    template="TileFmhaTraits",
)
V3 = CkProbe(
    "fmha_v3",
    f"{_FOLDER}/kernel/fmha_fwd_v3_kernel.hpp",
    (
        CkForm("own", "2025-11", text=r"\bseqstart_padded_q_ptr\b"),
        CkForm("shared", "2026-06", text=r"\bq_descale_ptr\b"),
    ),
)
_PAGED = (*_SCORES, "kIsPagedKV", "kDoFp8StaticQuant", *_LAUNCH)
PAGEDKV_TRAITS = CkProbe(
    "fmha_pagedkv_traits",
    _TRAITS,
    (CkForm("plain", "2025-11", _PAGED), CkForm("sinks", "2026-06", (*_PAGED, "kHasSink"))),
    template="TileFmhaFwdPagedKVTraits",
)
_SPLIT = (
    *(*_SCORES, "kDoFp8StaticQuant", "kIsPagedKV", "kHasUnevenSplits", "kMergeNumHeadGroupsSeqLenQ"),
    "kBlockPerCu",
)
SPLITKV_TRAITS = CkProbe(
    "fmha_splitkv_traits",
    _TRAITS,
    (CkForm("plain", "2025-11", _SPLIT), CkForm("sinks", "2026-06", (*_SPLIT, "kHasSink"))),
    template="TileFmhaFwdSplitKVTraits",
)
BATCH_PREFILL = CkProbe(
    "fmha_batch_prefill",
    f"{_FOLDER}/pipeline/block_fmha_pipeline_problem.hpp",
    (
        CkForm("token_pages", "2025-11"),
        CkForm("page_sizes", "2026-06", text=r"\bstruct BlockFmhaBatchPrefillPipelineProblem\b"),
    ),
)
_DOT = ("ODataType", "OGradDataType", "DDataType")
_DOT_TILE = ("kBlockSize", "kVHeaddim", "kIsGroupMode", "Traits")
DOT_DO_O = CkProbe(
    "fmha_dot_do_o",
    _GRADIENT_PROBLEM,
    (
        CkForm("plain", "2025-11", (*_DOT, *_DOT_TILE)),
        CkForm("lse", "2026-06", (*_DOT, "LSEDataType", *_DOT_TILE)),
    ),
    template="BlockFmhaBwdOGradDotOPipelineProblem",
)
GRADIENTS = CkProbe(
    "fmha_backward",
    f"{_FOLDER}/kernel/fmha_bwd_kernel.hpp",
    (CkForm("strides", "2025-11"), CkForm("workspace", "2026-06", text=r"\bstruct FmhaBwdWorkspaceManager\b")),
)
_CONVERT = ("AccDataType", "QGradDataType", "kBlockSize", "kM0")
_CONVERT_HEAD = ("kQKHeaddim", "kIsGroupMode", "kIsDeterministic", "Traits")
CONVERT_DQ = CkProbe(
    "fmha_convert_dq",
    _GRADIENT_PROBLEM,
    (
        CkForm("key_tiles", "2025-11", (*_CONVERT, "kN0", *_CONVERT_HEAD)),
        CkForm("parts", "2026-06", (*_CONVERT, *_CONVERT_HEAD)),
    ),
    template="BlockFmhaBwdConvertQGradPipelineProblem",
)
GFX11_ATTENTION = CkProbe(
    "gfx11_attention",
    f"{_FOLDER}/pipeline/block_fmha_pipeline_qr_ks_vs.hpp",
    (CkForm("absent", "2025-11"), CkForm("present", "2026-06", text=r"\b__gfx11__\b")),
)
BUFFER_RESOURCE = CkProbe(
    "buffer_resource",
    "ck_tile/core/arch/amd_buffer_addressing_builtins.hpp",
    (CkForm("struct", "2025-11"), CkForm("union", "2026-06", text=r"^union buffer_resource\b")),
)
CK_PROBES = (
    *(MASK, TRAITS, V3, PAGEDKV_TRAITS, SPLITKV_TRAITS, BATCH_PREFILL, DOT_DO_O, GRADIENTS, CONVERT_DQ),
    *(GFX11_ATTENTION, BUFFER_RESOURCE),
)
