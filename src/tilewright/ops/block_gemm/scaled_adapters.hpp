// For CK Tile's kernels with scales, whose interfaces to pipelines and epilogues differ from those of a plain GEMM.
#ifndef TILEWRIGHT_BLOCK_GEMM_SCALED_ADAPTERS_HPP
#define TILEWRIGHT_BLOCK_GEMM_SCALED_ADAPTERS_HPP

#include "tilewright_ck_api.hpp"
#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
#include "tilewright_block_gemm.hpp"
#endif

namespace tilewright_block_gemm {

// A kernel that passes A and B alone, which not all pipelines take. A plain GEMM passes lists of operands, with an
// operation for each.
template <typename Pipeline>
struct TwoOperands : Pipeline
{
    template <typename A, typename B>
    CK_TILE_DEVICE auto operator()(const A& a, const B& b, ck_tile::index_t steps, void* lds) const
    {
        using Unchanged = ck_tile::element_wise::PassThrough;
        return Pipeline::operator()(ck_tile::make_tuple(a), Unchanged{}, ck_tile::make_tuple(b), Unchanged{}, steps, lds);
    }
};

#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
// The kernel also passes the form of the loop, which the pipeline finds itself.
template <typename Pipeline>
struct TwoOperandsOfForm : TwoOperands<Pipeline>
{
    template <typename A, typename B>
    CK_TILE_DEVICE auto operator()(const A& a, const B& b, ck_tile::index_t steps, bool, ck_tile::TailNumber,
                                   void* lds) const
    {
        return TwoOperands<Pipeline>::operator()(a, b, steps, lds);
    }
};

// The kernel also has code that adds parts of K to C. It is never taken, and does not compile for all GPUs.
template <typename Epilogue>
struct StoreScaled : Epilogue
{
    template <typename Window, typename Tile, typename Tensors, typename... Scales>
    CK_TILE_DEVICE void operator()(Window& window, const Tile& tile, const Tensors& tensors, void* lds,
                                   const Scales&... scales)
    {
        if constexpr(stores<Window>)
            Epilogue::template operator()<Window, Tile>(window, tile, tensors, lds, scales...);
    }
};
#endif

} // namespace tilewright_block_gemm

#endif
