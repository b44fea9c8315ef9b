// The host side of kernels with scales of groups of A: as that of groups of B (tilewright_gemm_quant_group_launch.hpp),
// with CK Tile's loops that read scales of A.
//
// C is computed transposed in the registers of a wave, so that a lane holds elements of a single row of C in an mma tile,
// and multiplies them by one scale of A. In the other form, with the headers of 2025-11 lanes take the scales of later
// mma tiles along M from lanes that have loaded rows of another block.
#ifndef TILEWRIGHT_GEMM_QUANT_ROW_GROUP_LAUNCH_HPP
#define TILEWRIGHT_GEMM_QUANT_ROW_GROUP_LAUNCH_HPP

#include "tilewright_ck_api.hpp"
#include "tilewright_gemm_quant_group_launch.hpp"

#ifndef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
// A variable there has the type of threadIdx.x, which older HIP headers make a class without a value.
namespace tilewright_gemm_quant {
struct PlainIndex
{
    unsigned x;
};
} // namespace tilewright_gemm_quant
#define threadIdx (tilewright_gemm_quant::PlainIndex{})
#include "ck_tile/ops/gemm_quant/block/block_universal_gemm_as_aquant_bs_cr.hpp"
#undef threadIdx
#else
#include "ck_tile/ops/gemm_quant/block/block_universal_gemm_as_aquant_bs_cr.hpp"
#endif
#include "ck_tile/ops/gemm_quant/pipeline/gemm_aquant_pipeline_ag_bg_cr_policy.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_aquant_pipeline_ag_bg_cr_base.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_aquant_pipeline_ag_bg_cr_v3.hpp"
#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
#include "ck_tile/ops/gemm_quant/block/block_universal_gemm_as_aquant_bs_bquant_cr.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_abquant_pipeline_ag_bg_cr_policy.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_abquant_pipeline_ag_bg_cr_base.hpp"
#include "ck_tile/ops/gemm_quant/pipeline/gemm_abquant_pipeline_ag_bg_cr_v3.hpp"
#endif

namespace tilewright_gemm_quant {

#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
// For scales of A alone, CK Tile's kernel calls the loop in the form of the pipeline's type. This one chooses the form on
// the device, as for other scales.
template <typename Pipeline>
struct ChooseLoop : Pipeline
{
    template <typename A, typename B, typename ScalesA>
    CK_TILE_DEVICE auto operator()(const A& a, const B& b, const ScalesA& scales, ck_tile::index_t steps, void* lds,
                                   ck_tile::index_t m) const
    {
        return Pipeline::operator()(a, b, scales, steps, Pipeline::BlockHasHotloop(steps),
                                    Pipeline::GetBlockLoopTailNum(steps), lds, m);
    }
};
#endif

template <typename D>
struct RowGroupLauncher : GroupLauncher<D>
{
    using Base = GroupLauncher<D>;

    static int run(const tw_gemm_quant_args* args, hipStream_t stream)
    {
        if(const int status = Base::supports(args); status != TW_OK)
            return status;
        for(const void* tensor : {args->a, args->b, args->scale_a, static_cast<const void*>(args->c)})
            if(tensor == nullptr)
                return fail(TW_BAD_ARGS, "a, b, scale_a and c must not be null");
        if(D::has_scale_b && args->scale_b == nullptr)
            return fail(TW_BAD_ARGS, "scale_b must not be null");
        return Base::with_instance(
            *args, [&](auto instance) { return Base::template launch<decltype(instance)>(*args, stream); });
    }
};

} // namespace tilewright_gemm_quant

#define TILEWRIGHT_GEMM_QUANT_ROW_GROUP_EXPORT(symbol) \
    TILEWRIGHT_EXPORT(symbol, tilewright_gemm_quant::RowGroupLauncher, tw_gemm_quant_args)

#endif
