"""The templates of CK Tile's block GEMM that differ between its generations.

Until 2025, a GEMM kernel is compiled for one form of its loop over K and one way to store C: the pipeline's problem has
the parameters HasHotLoop and TailNum, and the epilogue's problem has MemoryOperation. Since 2026 (form "plain"), a
kernel contains all forms and chooses on the device.
"""

from __future__ import annotations

from tilewright.arch.ck_api import CkApi, CkForm, CkProbe

_OPERANDS = ("AsDataType", "BsDataType", "EDataType", "BlockGemmShape", "Traits", "Scheduler")
_VECTORS = ("FixedVectorSize", "VectorSizeA", "VectorSizeB")
PIPELINE_PROBLEM = CkProbe(
    "gemm_pipeline_problem",
    "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp",
    (
        CkForm(
            "per_loop",
            "2025-11",
            (*_OPERANDS, "HasHotLoop", "TailNum", "AElementWise", "BElementWise", "ComputeDataType", *_VECTORS),
        ),
        CkForm(
            "plain",
            "2026-06",
            (*_OPERANDS, "AElementWise", "BElementWise", "AComputeDataType", "BComputeDataType", *_VECTORS),
        ),
    ),
    template="UniversalGemmPipelineProblem",
)
_TENSORS = ("AsDataType", "BsDataType", "DsDataType", "AccDataType", "ODataType", "DsLayout")
_TILES = ("kM", "kN", "MWave", "NWave", "MPerXdl", "NPerXdl", "KPerXdl", "isCTransposed")
_STORED_VECTOR = ("kNumWaveGroups", "FixedVectorSize", "VectorSizeC")
CSHUFFLE_EPILOGUE = CkProbe(
    "cshuffle_epilogue",
    "ck_tile/ops/epilogue/cshuffle_epilogue.hpp",
    (
        CkForm(
            "per_store",
            "2025-11",
            (
                *(*_TENSORS, "ELayout", "CDElementwise", *_TILES, "MemoryOperation", *_STORED_VECTOR),
                *("TiledMMAPermuteN", "BlockedXDLN_PerWarp"),
            ),
        ),
        CkForm(
            "plain",
            "2026-06",
            (
                *(*_TENSORS, "ELayout", "CDElementwise", *_TILES, *_STORED_VECTOR, "BlockedXDLN_PerWarp"),
                *("DoubleSmemBuffer", "AComputeDataType", "BComputeDataType", "TilesPacked"),
            ),
        ),
    ),
    template="CShuffleEpilogueProblem",
)
_STORED_TILES = ("kM", "kN", "kPadM", "kPadN", "kMPerXdl", "kNPerXdl", "kKPerXdl", "isCTransposed", "UseRawStore")
DEFAULT_EPILOGUE = CkProbe(
    "default_epilogue",
    "ck_tile/ops/epilogue/default_2d_epilogue.hpp",
    (
        CkForm("per_store", "2025-11", (*_TENSORS, "CLayout", "CDElementwise", *_STORED_TILES, "MemoryOperation")),
        CkForm("plain", "2026-06", (*_TENSORS, "CLayout", "CDElementwise", *_STORED_TILES)),
    ),
    template="DefaultGemm2DEpilogueProblem",
)
_TRAITS = (
    *("kPadM", "kPadN", "kPadK", "DoubleSmemBuffer", "AsLayout", "BsLayout", "CLayout", "TransposeC"),
    *("UseStructuredSparsity", "UsePersistentKernel", "NumWaveGroups", "Preshuffle"),
)
TRAITS = CkProbe(
    "gemm_traits",
    "ck_tile/ops/gemm/pipeline/tile_gemm_traits.hpp",
    (
        CkForm("basic", "2025-11", _TRAITS),
        CkForm(
            "extended",
            "2026-06",
            (*_TRAITS, "VectorSize", "DataCachePrefetchA", "DataCachePrefetchB", "Async", "LargeTensors"),
        ),
    ),
    template="TileGemmUniversalTraits",
)
CK_PROBES = (PIPELINE_PROBLEM, CSHUFFLE_EPILOGUE, DEFAULT_EPILOGUE, TRAITS)


def chooses_on_device(ck: CkApi) -> bool:
    """Whether one kernel contains all forms of its loop and both ways to store C."""
    return ck.get_form(PIPELINE_PROBLEM) == "plain"
