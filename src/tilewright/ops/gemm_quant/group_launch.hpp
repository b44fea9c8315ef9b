// The host side of kernels with scales of groups along K: checks, launch and the C functions of tilewright_gemm_quant.h.
//
// A rendered kernel describes itself as for tilewright_gemm_quant_launch.hpp, and also has
//   Group                      CK Tile's shape of a group of elements with one scale
//   vector_scale               scales that a lane loads at once
// Scales are packed: those of A are m x groups with the groups of a row adjacent, those of B have the groups of a column
// (of Group::kN columns) adjacent. A group has Group::kK elements along K; the last one may have fewer.
#ifndef TILEWRIGHT_GEMM_QUANT_GROUP_LAUNCH_HPP
#define TILEWRIGHT_GEMM_QUANT_GROUP_LAUNCH_HPP

#include "tilewright_ck_api.hpp"
#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
// A variable there has the type of threadIdx.x, which older HIP headers make a class without a value.
namespace tilewright_gemm_quant {
struct PlainIndex
{
    unsigned x;
};
} // namespace tilewright_gemm_quant
#define threadIdx (tilewright_gemm_quant::PlainIndex{})
#include "ck_tile/ops/gemm_quant/block/block_gemm_quant_common.hpp"
#undef threadIdx
#endif
#include "ck_tile/ops/gemm_quant/pipeline/gemm_group_quant_utils.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_quant_pipeline_problem.hpp"
#include "ck_tile/ops/gemm_quant/block/block_universal_gemm_as_bs_bquant_cr.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_bquant_pipeline_ag_bg_cr_policy.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_bquant_pipeline_ag_bg_cr_base.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_bquant_pipeline_ag_bg_cr_v3.hpp"

#include "tilewright_gemm_quant_launch.hpp"

namespace tilewright_gemm_quant {

template <typename D>
struct GroupLauncher : Launcher<D>
{
    using Base = Launcher<D>;

    static int64_t count_groups(const tw_gemm_quant_args& args)
    {
        return (args.k + D::Group::kK - 1) / D::Group::kK;
    }

    static auto host_args(const tw_gemm_quant_args& args)
    {
        const auto i      = [](int64_t value) { return static_cast<ck_tile::index_t>(value); };
        const auto groups = i(count_groups(args));
        return ck_tile::QuantGemmHostArgs{
            args.a, args.b, args.c, args.scale_a, args.scale_b, 1, i(args.m), i(args.n), i(args.k), groups, groups,
            i(args.stride_a), i(args.stride_b), i(args.stride_c), groups, groups};
    }

    static int supports(const tw_gemm_quant_args* args)
    {
        if(const int status = Base::check(args); status != TW_OK)
            return status;
        if(count_groups(*args) % D::vector_scale != 0)
            return fail(TW_UNSUPPORTED, "K = %lld has a number of groups that is not a multiple of the %lld scales that "
                        "a lane loads", args->k, D::vector_scale);
        if constexpr(!Base::host_has_waves)
            return Base::is_tiled(*args) ? TW_OK : fail(TW_UNSUPPORTED, "a size is not a multiple of the block or of "
                                                        "C's vectors, and the kernel does not pad it");
        return Base::with_instance(*args, [&](auto instance) -> int {
            using K = decltype(instance);
            if(!K::IsSupportedArgument(K::MakeKernelArgs(host_args(*args))))
                return fail(TW_UNSUPPORTED, "CK Tile's IsSupportedArgument refuses these sizes "
                            "(CK_TILE_LOGGING=1 tells why)");
            return TW_OK;
        });
    }

    static int run(const tw_gemm_quant_args* args, hipStream_t stream)
    {
        if(const int status = supports(args); status != TW_OK)
            return status;
        for(const void* tensor : {args->a, args->b, args->scale_b, static_cast<const void*>(args->c)})
            if(tensor == nullptr)
                return fail(TW_BAD_ARGS, "a, b, scale_b and c must not be null");
        return Base::with_instance(*args, [&](auto instance) { return launch<decltype(instance)>(*args, stream); });
    }

    template <typename K>
    static int launch(const tw_gemm_quant_args& args, hipStream_t stream)
    {
        const auto arguments = K::MakeKernelArgs(host_args(args));
        const dim3 grid      = K::GridSize(arguments.M, arguments.N, 1);
        // Not CK Tile's BlockSize: the host assumes waves of 64 lanes, so that it is twice the number on RDNA.
        ck_tile::make_kernel<D::blocks_per_cu>(K{}, grid, dim3(D::threads), 0, arguments)(
            ck_tile::stream_config{stream});
        if(const auto error = hipGetLastError(); error != hipSuccess)
            return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
        return TW_OK;
    }
};

} // namespace tilewright_gemm_quant

#define TILEWRIGHT_GEMM_QUANT_GROUP_EXPORT(symbol) \
    TILEWRIGHT_EXPORT(symbol, tilewright_gemm_quant::GroupLauncher, tw_gemm_quant_args)

#endif
