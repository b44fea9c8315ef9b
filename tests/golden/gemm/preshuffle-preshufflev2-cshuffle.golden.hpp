// gemm-gfx942-preshuffle-fp16-fp16-fp32-fp16-rcr-b64x128x256-w2x2x1-i16x16x16-preshufflev2-default-cshuffle-permn-83e54d01e869
// Rendered by Tilewright from a kernel declaration; a change here is lost at the next rendering.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host/kernel_launch.hpp"
#include "ck_tile/ops/gemm.hpp"
#include "ck_tile/ops/epilogue/cshuffle_epilogue.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"
#include "tilewright_gemm.h"

namespace tw_gemm_83e54d01e869 {

using ADataType   = ck_tile::fp16_t;
using BDataType   = ck_tile::fp16_t;
using AccDataType = float;
using CDataType   = ck_tile::fp16_t;
using ALayout     = ck_tile::tensor_layout::gemm::RowMajor;
using BLayout     = ck_tile::tensor_layout::gemm::ColumnMajor;
using CLayout     = ck_tile::tensor_layout::gemm::RowMajor;
using DsDataType  = ck_tile::tuple<>;
using DsLayout    = ck_tile::tuple<>;
using Elementwise = ck_tile::element_wise::PassThrough;

using Shape = ck_tile::TileGemmShape<ck_tile::sequence<64, 128, 256>,
                                     ck_tile::sequence<2, 2, 1>,
                                     ck_tile::sequence<16, 16, 16>>;
// Work-groups are visited in groups of 8 rows, 4 columns at a time: CK Tile's own choice for its L2 reuse.
using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, 8, 4>;
using Traits      = ck_tile::TileGemmUniversalTraits<
    false, false, false, // pad m, n, k
    true, // second LDS buffer
    ALayout, BLayout, CLayout,
    false, // C is not transposed
    false, // no structured sparsity
    false, // persistent
    1, // wave groups
    true>; // preshuffled B

template <bool HasHotLoop, ck_tile::TailNumber Tail>
using PipelineProblem = ck_tile::UniversalGemmPipelineProblem<
    ADataType, BDataType, AccDataType, Shape, Traits,
    ck_tile::GemmPipelineScheduler::Default, HasHotLoop, Tail>;

using BasePipeline = ck_tile::BaseWeightPreshufflePipelineAGmemBGmemCRegV2<PipelineProblem<true, ck_tile::TailNumber::Full>>;

template <ck_tile::memory_operation_enum Store>
using Epilogue = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    ADataType, BDataType, DsDataType, AccDataType, CDataType, DsLayout, CLayout, Elementwise,
    64, 128, 2, 2, 16, 16, 16,
    false, Store, 1, false, 1, true>>;

template <bool HasHotLoop, ck_tile::TailNumber Tail, ck_tile::memory_operation_enum Store>
using Kernel = ck_tile::GemmKernel<Partitioner,
                                    ck_tile::WeightPreshufflePipelineAGmemBGmemCRegV2<PipelineProblem<HasHotLoop, Tail>>,
                                    Epilogue<Store>>;

constexpr auto kSet = ck_tile::memory_operation_enum::set;

thread_local char last_message[256] = "";

inline int fail(int status, const char* format, long long x = 0, long long y = 0)
{
    std::snprintf(last_message, sizeof(last_message), format, x, y);
    return status;
}

// The part of K that split number i works on, and the loops it makes. All parts share one compiled loop body,
// so they must agree in whether they have a hot loop and in their tail.
struct Split
{
    int64_t size;
    bool hot_loop;
    ck_tile::TailNumber tail;
};

inline Split split_of(const tw_gemm_args& args, int64_t i)
{
    const int64_t step  = args.k_batch * 16;
    const int64_t whole = (args.k + step - 1) / step * 16;
    const int64_t size  = i + 1 < args.k_batch ? whole : args.k - whole * (args.k_batch - 1);
    const auto loops    = Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(size));
    return {size, BasePipeline::BlockHasHotloop(loops), BasePipeline::GetBlockLoopTailNum(loops)};
}

inline int check(const tw_gemm_args* args)
{
    if(args == nullptr || args->size < sizeof(tw_gemm_args))
        return fail(TW_BAD_ARGS, "args is null or of an older ABI: %lld bytes, need %lld",
                    args == nullptr ? 0 : static_cast<long long>(args->size), sizeof(tw_gemm_args));
    if(args->m < 1 || args->n < 1 || args->k < 1 || args->k_batch < 1 || args->batch < 1)
        return fail(TW_BAD_ARGS, "m, n, k, k_batch and batch must be at least 1");
    // CK Tile keeps sizes, strides and element offsets in 32 bits.
    const int64_t limit = INT32_MAX;
    if(args->m > limit || args->n > limit || args->k > limit || args->stride_a > limit ||
       args->stride_b > limit || args->stride_c > limit || args->batch_stride_a > limit ||
       args->batch_stride_b > limit || args->batch_stride_c > limit)
        return fail(TW_UNSUPPORTED, "a size or stride is over %lld, the largest CK Tile can index", limit);
    if(args->k_batch > 1)
        return fail(TW_UNSUPPORTED, "k_batch is %lld but this kernel was built without split-K", args->k_batch);
    if(args->batch > 1)
        return fail(TW_UNSUPPORTED, "batch is %lld but this kernel is not batched", args->batch);
    const Split first = split_of(*args, 0);
    const Split last  = split_of(*args, args->k_batch - 1);
    if(last.size < 1)
        return fail(TW_UNSUPPORTED, "K = %lld leaves nothing for the last of %lld splits", args->k, args->k_batch);
    if(first.hot_loop != last.hot_loop || first.tail != last.tail)
        return fail(TW_UNSUPPORTED, "K = %lld splits unevenly into %lld parts", args->k, args->k_batch);
    return TW_OK;
}

inline auto host_args(const tw_gemm_args& args)
{
    const auto i = [](int64_t value) { return static_cast<ck_tile::index_t>(value); };
    return ck_tile::GemmHostArgs{args.a, args.b, args.c, i(args.k_batch), i(args.m), i(args.n), i(args.k),
                                 i(args.stride_a), i(args.stride_b), i(args.stride_c)};
}

// Calls `act` with the one kernel type that computes this problem.
template <typename Act>
int with_kernel(const tw_gemm_args& args, const Act& act)
{
    int status       = TW_OK;
    const Split part = split_of(args, 0);
    BasePipeline::TailHandler(
        [&](auto hot_loop, auto tail) {
            status = act(Kernel<hot_loop.value, tail.value, kSet>{});
        },
        part.hot_loop, part.tail);
    return status;
}

inline int supports(const tw_gemm_args* args)
{
    if(const int status = check(args); status != TW_OK)
        return status;
    return with_kernel(*args, [&](auto kernel) {
        using K = decltype(kernel);
        if(!K::IsSupportedArgument(K::MakeKernelArgs(host_args(*args))))
            return fail(TW_UNSUPPORTED, "CK Tile's IsSupportedArgument refuses m x n = %lld x %lld (see "
                        "CK_TILE_LOGGING=1)", args->m, args->n);
        return static_cast<int>(TW_OK);
    });
}

inline int run(const tw_gemm_args* args, hipStream_t stream)
{
    if(const int status = supports(args); status != TW_OK)
        return status;
    if(args->a == nullptr || args->b == nullptr || args->c == nullptr)
        return fail(TW_BAD_ARGS, "a, b and c must not be null");
    return with_kernel(*args, [&](auto kernel) {
        using K = decltype(kernel);
        const ck_tile::stream_config config{stream};
        auto arguments = K::MakeKernelArgs(host_args(*args));
        const auto grid = K::GridSize(args->m, args->n, args->k_batch);
        ck_tile::make_kernel<1>(K{}, grid, K::BlockSize(), 0, arguments)(config);
        if(const auto error = hipGetLastError(); error != hipSuccess)
            return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
        return static_cast<int>(TW_OK);
    });
}

} // namespace tw_gemm_83e54d01e869

extern "C" {
__attribute__((visibility("default"))) int tw_gemm_83e54d01e869_supports(const tw_gemm_args* args)
{
    return tw_gemm_83e54d01e869::supports(args);
}
// These kernels work in place: none of them needs a workspace.
__attribute__((visibility("default"))) int tw_gemm_83e54d01e869_workspace_size(const tw_gemm_args* args, uint64_t* bytes)
{
    *bytes = 0;
    return tw_gemm_83e54d01e869::check(args);
}
__attribute__((visibility("default"))) int tw_gemm_83e54d01e869_run(const tw_gemm_args* args, void* stream)
{
    return tw_gemm_83e54d01e869::run(args, static_cast<hipStream_t>(stream));
}
// The reason of this thread's last status other than TW_OK.
__attribute__((visibility("default"))) const char* tw_gemm_83e54d01e869_message(void) { return tw_gemm_83e54d01e869::last_message; }
__attribute__((visibility("default"))) const char* tw_gemm_83e54d01e869_name(void) { return "gemm-gfx942-preshuffle-fp16-fp16-fp32-fp16-rcr-b64x128x256-w2x2x1-i16x16x16-preshufflev2-default-cshuffle-permn-83e54d01e869"; }
}
