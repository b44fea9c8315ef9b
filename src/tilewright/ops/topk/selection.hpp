// The selection of the k largest elements of rows, of equal ones that with the lower index.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/topk_softmax.hpp"

namespace tilewright_topk {

struct Candidate
{
    float value;
    ck_tile::index_t index;
};

// A total order. CK Tile's `BlockTopkStream2D` takes the other lane's candidate if values are equal, so that the two
// lanes of a pair keep different ones; neither of them is removed, and the same index is a result again.
struct TakeBetter
{
    CK_TILE_DEVICE Candidate operator()(const Candidate& one, const Candidate& other) const
    {
        if(other.value > one.value)
            return other;
        return other.value == one.value && other.index < one.index ? other : one;
    }
};

template <ck_tile::index_t LanesPerRow>
struct SelectLargest
{
    template <typename Values, typename Weights, typename Indices>
    CK_TILE_DEVICE void
    operator()(const Values& given, const Weights& weights, const Indices& indices, ck_tile::index_t count) const
    {
        using namespace ck_tile;
        constexpr auto spans = Values::get_distributed_spans();
        constexpr float none = -numeric<float>::infinity(); // below every value, and that of elements already taken
        const auto each      = [&](auto visit) {
            sweep_tile_span(spans[number<0>{}], [&](auto row) {
                sweep_tile_span(spans[number<1>{}], [&](auto column) { visit(make_tuple(row, column)); });
            });
        };
        auto left         = given;
        auto weight_place = weights;
        auto index_place  = indices;
        for(index_t taken = 0; taken < count; ++taken)
        {
            auto candidates = make_static_distributed_tensor<Candidate>(given.get_tile_distribution());
            each([&](auto place) {
                const auto at     = get_x_indices_from_distributed_indices(given.get_tile_distribution(), place);
                candidates(place) = Candidate{left[place], at[number<1>{}]};
            });
            // Rows of NaN have no largest element: index 0 is at least one that exists.
            auto best = block_tile_reduce<Candidate>(candidates, sequence<1>{}, TakeBetter{}, Candidate{none, 0});
            block_tile_reduce_xor_sync(best, TakeBetter{});

            constexpr auto result = typename Indices::TileDstr{};
            auto best_weight      = make_static_distributed_tensor<float>(result);
            auto best_index       = make_static_distributed_tensor<index_t>(result);
            each([&](auto place) {
                const auto at      = get_x_indices_from_distributed_indices(given.get_tile_distribution(), place);
                best_weight(place) = best(place).value;
                best_index(place)  = best(place).index;
                if(at[number<1>{}] == best(place).index)
                    left(place) = none;
            });
            if(threadIdx.x % LanesPerRow == 0)
            {
                store_tile(weight_place, best_weight);
                store_tile(index_place, best_index);
            }
            move_tile_window(weight_place, {number<0>{}, number<1>{}});
            move_tile_window(index_place, {number<0>{}, number<1>{}});
        }
    }
};

struct Policy : ck_tile::TopkSoftmaxWarpPerRowPolicy
{
    template <typename Problem>
    CK_TILE_HOST_DEVICE static constexpr auto GetTopk()
    {
        return SelectLargest<Problem::LanesPerRow>{};
    }
};

} // namespace tilewright_topk
