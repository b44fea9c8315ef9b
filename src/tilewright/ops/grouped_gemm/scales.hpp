// For grouped GEMM kernels with scales of rows and columns: CK Tile's kernel, and its arguments of one group.
#ifndef TILEWRIGHT_GROUPED_GEMM_SCALES_HPP
#define TILEWRIGHT_GROUPED_GEMM_SCALES_HPP

#include "ck_tile/ops/gemm_quant/kernel/grouped_gemm_quant_kernel.hpp"
#include "tilewright_grouped_gemm_launch.hpp"

namespace tilewright_grouped_gemm {

struct ScaledGroup
{
    using Arguments                  = ck_tile::QuantGroupedGemmKernelArgs;
    using Entry                      = ck_tile::QuantGemmTransKernelArg;
    static constexpr bool has_scales = true;

    // Not CK Tile's MakeKargs: with the headers of 2025-11 its values are in another order than the members. Scales have
    // no groups along K, hence none of the numbers and strides of such groups.
    template <typename M>
    CK_TILE_DEVICE static Arguments make(const GroupedCall& call, const M& of, int64_t scale_a, int64_t scale_b)
    {
        return {of.a, of.b, call.scale_a + scale_a, call.scale_b + scale_b, of.c, of.m, of.n, of.k, 1, 1,
                call.stride_a, call.stride_b, call.stride_c, 1, 1, 1};
    }
};

} // namespace tilewright_grouped_gemm

#endif
