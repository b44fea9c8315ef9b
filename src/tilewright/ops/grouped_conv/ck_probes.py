"""The templates of CK Tile's convolutions that differ between its generations, next to those of the block GEMM."""

from __future__ import annotations

from tilewright.arch.ck_api import CkForm, CkProbe
from tilewright.ops.block_gemm import ck_probes

_FOLDER = "ck_tile/ops/grouped_convolution"
_TRAITS = (
    *("NDimSpatial", "ConvSpecialization", "InLayout", "WeiLayout", "DsLayout", "OutLayout"),
    *("VectorSizeA", "VectorSizeB", "VectorSizeC", "NumGroupsToMerge", "EnableSplitImage"),
)
TRAITS = CkProbe(
    "conv_traits",
    f"{_FOLDER}/utils/grouped_convolution_utils.hpp",
    (
        CkForm("basic", "2025-11", _TRAITS),
        CkForm("extended", "2026-06", (*_TRAITS, "ExplicitGemm", "DepthwiseTraitsType")),
    ),
    template="GroupedConvTraits",
)
_GEMM_KERNEL = ("GroupedConvTraitsType", "TilePartitioner", "GemmPipeline", "EpiloguePipeline")
_ANY_KERNEL = ("GroupedConvTraitsType", "TilePartitioner", "Pipeline", "EpiloguePipeline")
FORWARD_KERNEL = CkProbe(
    "conv_forward_kernel",
    f"{_FOLDER}/kernel/grouped_convolution_forward_kernel.hpp",
    (
        CkForm("gemm", "2025-11", _GEMM_KERNEL),
        CkForm("gemm_or_depthwise", "2026-06", _ANY_KERNEL),
    ),
    template="GroupedConvolutionForwardKernel",
)
BACKWARD_DATA_KERNEL = CkProbe(
    "conv_backward_data_kernel",
    f"{_FOLDER}/kernel/grouped_convolution_backward_data_kernel.hpp",
    (CkForm("gemm", "2025-11", _GEMM_KERNEL),),
    template="GroupedConvolutionBackwardDataKernel",
)
BACKWARD_WEIGHT_KERNEL = CkProbe(
    "conv_backward_weight_kernel",
    f"{_FOLDER}/kernel/grouped_convolution_backward_weight_kernel.hpp",
    (CkForm("gemm", "2025-11", _GEMM_KERNEL),),
    template="GroupedConvolutionBackwardWeightKernel",
)
CK_PROBES = (*ck_probes.CK_PROBES, TRAITS, FORWARD_KERNEL, BACKWARD_DATA_KERNEL, BACKWARD_WEIGHT_KERNEL)
