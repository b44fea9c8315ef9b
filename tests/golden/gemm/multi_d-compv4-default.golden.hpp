// gemm-gfx942-multi_d-fp32-fp32-fp32-fp32-rcr-b64x128x32-w1x4x1-i16x16x16-compv4-intrawave-default-d1-1a9f65c58d68
// Rendered by Tilewright from a kernel declaration; a change here is lost at the next rendering.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host/kernel_launch.hpp"
#include "ck_tile/ops/gemm.hpp"
#include "ck_tile/ops/epilogue/cshuffle_epilogue.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"
#include "tilewright_gemm_launch.hpp"

namespace tw_gemm_1a9f65c58d68 {

using ADataType   = float;
using BDataType   = float;
using AccDataType = float;
using ALayout     = ck_tile::tensor_layout::gemm::RowMajor;
using BLayout     = ck_tile::tensor_layout::gemm::ColumnMajor;
using Elementwise = ck_tile::element_wise::PassThrough;

struct Description
{
    static constexpr const char* name   = "gemm-gfx942-multi_d-fp32-fp32-fp32-fp32-rcr-b64x128x32-w1x4x1-i16x16x16-compv4-intrawave-default-d1-1a9f65c58d68";
    static constexpr int block_m        = 64;
    static constexpr int mma_n          = 16;
    static constexpr int mma_k          = 16;
    static constexpr int num_d          = 1;
    static constexpr int blocks_per_cu  = 1;
    static constexpr int unlooped       = 3;
    static constexpr int least_steps    = 1;
    static constexpr bool batched       = false;
    static constexpr bool preshuffle    = false;
    static constexpr bool split_k       = false;
    static constexpr bool persistent    = false;
    static constexpr bool unbounded_add = false;

    using CDataType  = float;
    using CLayout    = ck_tile::tensor_layout::gemm::RowMajor;
    using DsDataType = ck_tile::tuple<CDataType>;
    using DsLayout   = ck_tile::tuple<CLayout>;

    using Shape = ck_tile::TileGemmShape<ck_tile::sequence<64, 128, 32>,  // block
                                         ck_tile::sequence<1, 4, 1>,  // waves
                                         ck_tile::sequence<16, 16, 16>>; // mma
    // Work-groups are visited in groups of 8 rows, 4 columns at a time: CK Tile's own choice for L2 reuse.
    using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, 8, 4>;
    using Traits      = ck_tile::TileGemmUniversalTraits<
        false, false, false, // pad m, n, k
        true, // second LDS buffer
        ALayout, BLayout, CLayout,
        false, // transposed C
        false, // structured sparsity
        persistent,
        1, // wave groups
        preshuffle>;

    template <bool HasHotLoop, ck_tile::TailNumber Tail>
    using PipelineProblem = ck_tile::UniversalGemmPipelineProblem<
        ADataType, BDataType, AccDataType, Shape, Traits,
        ck_tile::GemmPipelineScheduler::Intrawave, HasHotLoop, Tail>;
    using BasePipeline = ck_tile::BaseGemmPipelineAgBgCrCompV4<PipelineProblem<true, ck_tile::TailNumber::Full>>;

    template <ck_tile::memory_operation_enum Store>
    using Epilogue = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
        ADataType, BDataType, DsDataType, AccDataType, CDataType, DsLayout, CLayout, Elementwise,
        64, 128, false, false, 16, 16, 16,
        false, Store == ck_tile::memory_operation_enum::set, // raw stores; CK Tile has no raw atomic add
        Store>>;

    template <bool HasHotLoop, ck_tile::TailNumber Tail, ck_tile::memory_operation_enum Store>
    using Instance = ck_tile::GemmKernelMultiD<
        Partitioner, ck_tile::GemmPipelineAgBgCrCompV4<PipelineProblem<HasHotLoop, Tail>>, Epilogue<Store>>;
};

} // namespace tw_gemm_1a9f65c58d68

TILEWRIGHT_GEMM_EXPORT(tw_gemm_1a9f65c58d68)
