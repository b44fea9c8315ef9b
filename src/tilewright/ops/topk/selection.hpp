// The selection of the k largest logits of rows, of equal ones that with the lower index, and their weights.
//
// CK Tile selects after the activation, where different logits may have the same weight: sigmoid is 1 above 17 in fp32.
// So its pipeline is given no activation, and that of the selected logits is computed here.
#ifndef TILEWRIGHT_TOPK_SELECTION_HPP
#define TILEWRIGHT_TOPK_SELECTION_HPP

#include "ck_tile/core.hpp"
#include "ck_tile/ops/topk_softmax.hpp"

namespace tilewright_topk {

// The order of logits as one of integers: NaN is above +infinity, -0 equals +0, and 0 is below every logit.
constexpr uint32_t sign_bit = 0x80000000, infinite = 0x7f800000, quiet_nan = 0x7fc00000;

CK_TILE_DEVICE uint32_t make_key(float logit)
{
    const uint32_t bits = ck_tile::bit_cast<uint32_t>(logit), magnitude = bits & ~sign_bit;
    if(magnitude > infinite)
        return sign_bit + quiet_nan;
    return (bits & sign_bit) != 0 ? sign_bit - magnitude : sign_bit + magnitude;
}

CK_TILE_DEVICE float read_key(uint32_t key)
{
    return ck_tile::bit_cast<float>(key < sign_bit ? (sign_bit - key) | sign_bit : key - sign_bit);
}

struct Candidate
{
    uint32_t key;
    ck_tile::index_t index;
};

// A total order. CK Tile's `BlockTopkStream2D` takes the other lane's candidate if values are equal, so that the two
// lanes of a pair keep different ones; neither of them is removed, and the same index is a result again. Lanes without
// a logit have -infinity and a higher index than every expert, so that a row's own -infinity precedes them.
struct TakeBetter
{
    CK_TILE_DEVICE Candidate operator()(const Candidate& one, const Candidate& other) const
    {
        if(other.key > one.key)
            return other;
        return other.key == one.key && other.index < one.index ? other : one;
    }
};

template <typename Logits, typename Visit>
CK_TILE_DEVICE void for_each_row(const Visit& visit)
{
    ck_tile::sweep_tile_span(Logits::get_distributed_spans()[ck_tile::number<0>{}], visit);
}

// Calls `visit` with the row of each element and its whole index.
template <typename Logits, typename Visit>
CK_TILE_DEVICE void for_each_element(const Visit& visit)
{
    for_each_row<Logits>([&](auto row) {
        ck_tile::sweep_tile_span(Logits::get_distributed_spans()[ck_tile::number<1>{}], [&](auto column) {
            visit(ck_tile::make_tuple(row), ck_tile::make_tuple(row, column));
        });
    });
}

// The activation of a logit of a row. As torch's, softmax of a row with NaN or +infinity, or with nothing but
// -infinity, is NaN everywhere.
template <bool IsSoftmax, typename Logits>
CK_TILE_DEVICE auto make_activation(const Logits& logits)
{
    using namespace ck_tile;
    if constexpr(IsSoftmax)
    {
        constexpr float none = -numeric<float>::infinity();
        const auto largest   = BlockReduce2D{logits, none}([](auto a, auto b) { return max(a, b); });
        auto exponentials    = make_static_distributed_tensor<float>(logits.get_tile_distribution());
        for_each_element<Logits>(
            [&](auto row, auto element) { exponentials(element) = exp(logits[element] - largest[row]); });
        const auto sum       = BlockReduce2D{exponentials, 0.f}([](auto a, auto b) { return a + b; });
        return [=](auto row, float logit) { return exp(logit - largest[row]) / sum[row]; };
    }
    else
        return [](auto, float logit) { return 1.f / (1.f + exp(-logit)); };
}

template <typename Problem, bool IsSoftmax>
struct SelectLargest
{
    template <typename Logits, typename Weights, typename Indices>
    CK_TILE_DEVICE void
    operator()(const Logits& logits, const Weights& weights, const Indices& indices, ck_tile::index_t count) const
    {
        using namespace ck_tile;
        const auto find_expert = [&](auto element) {
            return get_x_indices_from_distributed_indices(logits.get_tile_distribution(), element)[number<1>{}];
        };
        const auto activate = make_activation<IsSoftmax>(logits);
        auto left           = make_static_distributed_tensor<uint32_t>(logits.get_tile_distribution());
        for_each_element<Logits>([&](auto, auto element) { left(element) = make_key(logits[element]); });

        auto weight_window = weights;
        auto index_window  = indices;
        for(index_t taken = 0; taken < count; ++taken)
        {
            auto candidates = make_static_distributed_tensor<Candidate>(logits.get_tile_distribution());
            for_each_element<Logits>(
                [&](auto, auto element) { candidates(element) = Candidate{left[element], find_expert(element)}; });
            auto best = block_tile_reduce<Candidate>(candidates, sequence<1>{}, TakeBetter{}, Candidate{0, 0});
            block_tile_reduce_xor_sync(best, TakeBetter{});
            for_each_element<Logits>([&](auto row, auto element) {
                if(find_expert(element) == best[row].index)
                    left(element) = 0;
            });

            constexpr auto result = typename Indices::TileDstr{};
            auto best_weight      = make_static_distributed_tensor<float>(result);
            auto best_index       = make_static_distributed_tensor<index_t>(result);
            for_each_row<Logits>([&](auto row) {
                constexpr auto in  = make_tuple(row);
                constexpr auto out = make_tuple(row, detail::make_tile_distributed_index(sequence<0>{}));
                best_weight(out)   = activate(in, read_key(best[in].key));
                best_index(out)    = best[in].index;
            });
            if(threadIdx.x % Problem::LanesPerRow == 0)
            {
                store_tile(weight_window, best_weight);
                store_tile(index_window, best_index);
            }
            move_tile_window(weight_window, {number<0>{}, number<1>{}});
            move_tile_window(index_window, {number<0>{}, number<1>{}});
        }
    }
};

struct KeepLogits
{
    template <typename Logits>
    CK_TILE_DEVICE const Logits& operator()(const Logits& logits) const
    {
        return logits;
    }
};

template <bool IsSoftmax>
struct Policy : ck_tile::TopkSoftmaxWarpPerRowPolicy
{
    template <typename Problem>
    CK_TILE_HOST_DEVICE static constexpr auto GetSoftmax()
    {
        return KeepLogits{};
    }

    template <typename Problem>
    CK_TILE_HOST_DEVICE static constexpr auto GetTopk()
    {
        return SelectLargest<Problem, IsSoftmax>{};
    }
};

} // namespace tilewright_topk

#endif
