"""CK Tile's names for our words about the GEMM of one work-group."""

from __future__ import annotations

PIPELINE_TYPES = {
    "mem": "GemmPipelineAgBgCrMem",
    "compv3": "GemmPipelineAgBgCrCompV3",
    "compv4": "GemmPipelineAgBgCrCompV4",
    "compv5": "GemmPipelineAgBgCrCompV5",
    "compv6": "GemmPipelineAgBgCrCompV6",
    "comp_async": "GemmPipelineAgBgCrCompAsync",
}
SCHEDULER_NAMES = {"intrawave": "Intrawave", "interwave": "Interwave"}
# BlockHasHotloop says that 3 steps have a hot loop, but then the loop takes 2 and the tail 3 of them: 5 steps are
# summed (gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp and …comp_async.hpp). Without the loop they are right.
UNLOOPED = {"compv4": 3, "comp_async": 3}
