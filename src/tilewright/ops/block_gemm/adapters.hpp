// For CK Tile of 2026, whose GEMM kernels choose on the device how they loop and how they store.
#ifndef TILEWRIGHT_BLOCK_GEMM_ADAPTERS_HPP
#define TILEWRIGHT_BLOCK_GEMM_ADAPTERS_HPP

namespace tilewright_block_gemm {

// comp_async runs its loop for 3 steps, and sums 5. Without the loop 3 are summed.
template <typename Pipeline>
struct ThreeSteps : Pipeline
{
    template <typename As, typename ChangeA, typename Bs, typename ChangeB>
    CK_TILE_DEVICE auto operator()(const As& as, const ChangeA& change_a, const Bs& bs, const ChangeB& change_b,
                                   ck_tile::index_t steps, void* lds) const
    {
        const auto run = [&](auto hot_loop, auto tail) {
            using Implementation = typename Pipeline::template PipelineImpl<Pipeline::Scheduler>;
            return Implementation{}.template operator()<hot_loop.value, tail.value>(
                as, change_a, bs, change_b, steps, lds);
        };
        return Pipeline::TailHandler(run, steps != 3 && Pipeline::BlockHasHotloop(steps),
                                     Pipeline::GetBlockLoopTailNum(steps));
    }
};

// compv3 with eight waves chooses between forms of another loop. Its own sums all steps but the last one.
template <typename Pipeline>
struct EightWaves : Pipeline
{
    template <typename As, typename ChangeA, typename Bs, typename ChangeB>
    CK_TILE_DEVICE auto operator()(const As& as, const ChangeA& change_a, const Bs& bs, const ChangeB& change_b,
                                   ck_tile::index_t steps, void* lds) const
    {
        using Implementation = typename Pipeline::template PipelineImpl<Pipeline::Scheduler>;
        using Tail           = ck_tile::TailNumber;
        const auto count     = ck_tile::amd_wave_read_first_lane(steps);
        if(count > 2)
            return Implementation{}.template operator()<true, Tail::Odd>(as, change_a, bs, change_b, steps, lds);
        if(count == 2)
            return Implementation{}.template operator()<false, Tail::Even>(as, change_a, bs, change_b, steps, lds);
        return Implementation{}.template operator()<false, Tail::Odd>(as, change_a, bs, change_b, steps, lds);
    }
};

template <typename Window>
inline constexpr bool stores =
    ck_tile::remove_cvref_t<decltype(std::declval<Window&>().get_bottom_tensor_view())>::DstInMemOp ==
    ck_tile::memory_operation_enum::set;

// An epilogue of kernels without split-K: its way to add is never taken, and does not compile for all GPUs.
template <typename Epilogue>
struct StoreOnly : Epilogue
{
    template <typename Window, typename Tile, typename Tensors>
    CK_TILE_DEVICE void operator()(Window& window, const Tile& tile, const Tensors& tensors, void* lds)
    {
        if constexpr(stores<Window>)
            Epilogue::template operator()<Window, Tile>(window, tile, tensors, lds);
    }
};

// The default epilogue with split-K: it stores where it should add.
template <typename Epilogue>
struct StoreOrAdd : Epilogue
{
    template <typename Window, typename Tile, typename Tensors>
    CK_TILE_DEVICE void operator()(Window& window, const Tile& tile, const Tensors& tensors, void* lds)
    {
        if constexpr(stores<Window>)
            Epilogue::template operator()<Window, Tile>(window, tile, tensors, lds);
        else
            ck_tile::update_tile(window, ck_tile::cast_tile<typename Epilogue::ODataType>(tile));
    }
};

} // namespace tilewright_block_gemm

#endif
