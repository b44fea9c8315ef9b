"""CK Tile's names for the field values of a work-group's GEMM."""

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
# BlockHasHotloop is true for 3 steps, but then the loop runs 2 steps and the tail 3: 5 steps are summed
# (gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp and …comp_async.hpp). Without the loop the result is correct.
UNLOOPED = {"compv4": 3, "comp_async": 3}
