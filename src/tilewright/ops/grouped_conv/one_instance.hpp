// For CK Tile of 2026, whose kernels choose on the device how they loop and how they store: one instance computes all
// problems.
#ifndef TILEWRIGHT_GROUPED_CONV_ONE_INSTANCE_HPP
#define TILEWRIGHT_GROUPED_CONV_ONE_INSTANCE_HPP

#include <type_traits>

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

// comp_async runs its loop for 3 steps, and sums 5. Without the loop 3 are summed.
template <typename Pipeline>
struct ThreeSteps : Pipeline
{
    template <typename A, typename B>
    CK_TILE_DEVICE auto operator()(const A& a, const B& b, ck_tile::index_t steps, void* lds) const
    {
        const auto run = [&](auto hot_loop, auto tail) {
            using Implementation = typename Pipeline::template PipelineImpl<Pipeline::Scheduler>;
            const ck_tile::element_wise::PassThrough as_it_is{};
            return Implementation{}.template operator()<hot_loop.value, tail.value>(
                ck_tile::make_tuple(a), as_it_is, ck_tile::make_tuple(b), as_it_is, steps, lds);
        };
        return Pipeline::TailHandler(run, steps != 3 && Pipeline::BlockHasHotloop(steps),
                                     Pipeline::GetBlockLoopTailNum(steps));
    }
};

// The default epilogue stores where it should add, and cannot be made from an elementwise function, as the forward
// kernel makes it.
template <typename Epilogue>
struct StoreOrAdd : Epilogue
{
    StoreOrAdd() = default;
    CK_TILE_DEVICE explicit StoreOrAdd(const typename Epilogue::CDElementwise&) {}

    template <typename Window, typename Tile, typename Tensors>
    CK_TILE_DEVICE void operator()(Window& window, const Tile& tile, const Tensors& tensors, void* lds) const
    {
        using View = ck_tile::remove_cvref_t<decltype(window.get_bottom_tensor_view())>;
        if constexpr(View::DstInMemOp == ck_tile::memory_operation_enum::set)
            Epilogue::template operator()<Window, Tile>(window, tile, tensors, lds);
        else
            ck_tile::update_tile(window, ck_tile::cast_tile<typename Epilogue::ODataType>(tile));
    }
};

} // namespace tilewright_grouped_conv

#endif
