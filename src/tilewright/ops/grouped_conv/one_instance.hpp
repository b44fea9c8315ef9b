// For CK Tile of 2026, whose kernels choose on the device how they loop and how they store: one instance computes all
// problems.
#ifndef TILEWRIGHT_GROUPED_CONV_ONE_INSTANCE_HPP
#define TILEWRIGHT_GROUPED_CONV_ONE_INSTANCE_HPP

#include <type_traits>

#include "tilewright_block_gemm.hpp"

namespace tilewright_grouped_conv {

// The launcher's BasePipeline: whatever the number of steps, the same instance.
struct AnySteps
{
    static constexpr bool BlockHasHotloop(ck_tile::index_t) { return true; }
    static constexpr ck_tile::TailNumber GetBlockLoopTailNum(ck_tile::index_t) { return ck_tile::TailNumber::Full; }

    template <typename Run>
    static void TailHandler(const Run& run, bool, ck_tile::TailNumber)
    {
        run(std::true_type{}, std::integral_constant<ck_tile::TailNumber, ck_tile::TailNumber::Full>{});
    }
};

// CK Tile's forward kernel makes its epilogue from an elementwise function, which the default one does not take.
template <typename Epilogue>
struct WithoutFunction : Epilogue
{
    CK_TILE_DEVICE explicit WithoutFunction(const typename Epilogue::CDElementwise&) {}
};

} // namespace tilewright_grouped_conv

#endif
