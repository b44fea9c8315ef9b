// Cheaper ways to the same answers, for the CK Tile metafunctions that cost the compiler most.
//
// Each is a partial specialisation of a CK Tile template for the arguments that kernels use. It gives the types and
// values of the original, computed by plain loops over arrays instead of recursive instantiation: the same code comes
// out and the compiler is asked less. With TILEWRIGHT_NO_SHORTCUTS defined, CK Tile's own are used.
#ifndef TILEWRIGHT_CK_SHORTCUTS_HPP
#define TILEWRIGHT_CK_SHORTCUTS_HPP
#ifndef TILEWRIGHT_NO_SHORTCUTS

#include "ck_tile/core/container/sequence.hpp"
#include "ck_tile/core/algorithm/space_filling_curve.hpp"
#include "ck_tile/core/utility/functional.hpp"

namespace tilewright_ck {

using ck_tile::index_t;

template <index_t N>
struct Numbers
{
    index_t of[N > 0 ? N : 1] = {};
};

template <index_t N>
struct Sorted
{
    Numbers<N> values = {};
    Numbers<N> ids    = {};
    index_t distinct  = 0;
};

// Ascending by value. Of equal values the later one comes first, as CK Tile's merge sort has it.
template <index_t N>
CK_TILE_HOST_DEVICE constexpr Sorted<N> sort(const Numbers<N>& given, bool unique)
{
    Sorted<N> result = {};
    index_t count    = 0;
    for(index_t id = 0; id < N; ++id)
    {
        const index_t value = given.of[id];
        index_t place       = 0;
        while(place < count && result.values.of[place] < value)
            ++place;
        const bool seen = place < count && result.values.of[place] == value;
        if(!(unique && seen))
        {
            for(index_t i = count; i > place; --i)
            {
                result.values.of[i] = result.values.of[i - 1];
                result.ids.of[i]    = result.ids.of[i - 1];
            }
            ++count;
        }
        result.values.of[place] = value;
        result.ids.of[place]    = id;
    }
    result.distinct = count;
    return result;
}

template <typename Source, typename Places>
struct Pick;

template <typename Source, index_t... I>
struct Pick<Source, ck_tile::sequence<I...>>
{
    using values = ck_tile::sequence<Source::sorted.values.of[I]...>;
    using ids    = ck_tile::sequence<Source::sorted.ids.of[I]...>;
};

template <bool Unique, index_t... Is>
struct Sort
{
    static constexpr auto sorted = sort(Numbers<sizeof...(Is)>{{Is...}}, Unique);
    using picked                 = Pick<Sort, ck_tile::make_index_sequence<sorted.distinct>>;
};

template <index_t N>
CK_TILE_HOST_DEVICE constexpr bool is_permutation(const Numbers<N>& map)
{
    Numbers<N> seen = {};
    for(index_t i = 0; i < N; ++i)
    {
        if(map.of[i] < 0 || map.of[i] >= N || seen.of[map.of[i]] != 0)
            return false;
        seen.of[map.of[i]] = 1;
    }
    return true;
}

template <index_t N>
CK_TILE_HOST_DEVICE constexpr Numbers<N> inverse(const Numbers<N>& map)
{
    Numbers<N> result = {};
    for(index_t i = 0; i < N; ++i)
        result.of[map.of[i]] = i;
    return result;
}

// The i-th stop of a walk over a box, in units of one access, dimension by dimension in the given order.
// A snake turns round whenever the position on the dimensions before is odd.
template <index_t N>
CK_TILE_HOST_DEVICE constexpr Numbers<N>
stop(index_t i, const Numbers<N>& lengths, const Numbers<N>& order, const Numbers<N>& step, bool snake)
{
    Numbers<N> ordered = {};
    for(index_t d = N - 1, rest = i; d >= 0; --d)
    {
        const index_t length = lengths.of[order.of[d]] / step.of[order.of[d]];
        ordered.of[d]        = rest % length;
        rest /= length;
    }
    Numbers<N> result = {};
    index_t before    = 0;
    for(index_t d = 0; d < N; ++d)
    {
        const index_t length  = lengths.of[order.of[d]] / step.of[order.of[d]];
        const bool forward    = !snake || d == 0 || before % 2 == 0;
        const index_t place   = forward ? ordered.of[d] : length - 1 - ordered.of[d];
        result.of[order.of[d]] = place * step.of[order.of[d]];
        before                 = d == 0 ? ordered.of[0] : before * length + ordered.of[d];
    }
    return result;
}

// The same for a walk in single steps.
template <index_t I, bool Snake, typename Lengths, typename Order>
inline constexpr int stop_of = 0;

template <index_t I, bool Snake, index_t... Lengths, index_t... Order>
inline constexpr Numbers<sizeof...(Lengths)> stop_of<I, Snake, ck_tile::sequence<Lengths...>, ck_tile::sequence<Order...>> =
    stop<sizeof...(Lengths)>(I, {{Lengths...}}, {{Order...}}, {{(Lengths, 1)...}}, Snake);

} // namespace tilewright_ck

namespace ck_tile {

template <index_t I, index_t... Is>
struct sequence_sort<sequence<I, Is...>, less<index_t>>
{
    using type                = typename tilewright_ck::Sort<false, I, Is...>::picked::values;
    using sorted2unsorted_map = typename tilewright_ck::Sort<false, I, Is...>::picked::ids;
};

template <index_t I, index_t... Is>
struct sequence_unique_sort<sequence<I, Is...>, less<index_t>, equal<index_t>>
{
    using type                = typename tilewright_ck::Sort<true, I, Is...>::picked::values;
    using sorted2unsorted_map = typename tilewright_ck::Sort<true, I, Is...>::picked::ids;
};

// decltype of a constexpr variable is const, and CK Tile passes it on like that.
template <index_t I, index_t... Is>
struct sequence_sort<const sequence<I, Is...>, less<index_t>> : sequence_sort<sequence<I, Is...>, less<index_t>>
{
};

template <index_t I, index_t... Is>
struct sequence_unique_sort<const sequence<I, Is...>, less<index_t>, equal<index_t>>
    : sequence_unique_sort<sequence<I, Is...>, less<index_t>, equal<index_t>>
{
};

template <index_t I, index_t... Is>
struct is_valid_sequence_map<sequence<I, Is...>>
    : std::bool_constant<tilewright_ck::is_permutation(tilewright_ck::Numbers<1 + sizeof...(Is)>{{I, Is...}})>
{
};

template <index_t I, index_t... Is>
struct is_valid_sequence_map<const sequence<I, Is...>> : is_valid_sequence_map<sequence<I, Is...>>
{
};

template <index_t... Lengths, index_t... Order>
struct static_ford<sequence<Lengths...>, sequence<Order...>>
{
    static_assert(sizeof...(Lengths) > 0 && sizeof...(Lengths) == sizeof...(Order));

    template <typename F>
    CK_TILE_HOST_DEVICE constexpr void operator()(F f) const
    {
        walk(f, make_index_sequence<(Lengths * ... * 1)>{});
    }

    private:
    template <typename F, index_t... I>
    CK_TILE_HOST_DEVICE static constexpr void walk(F f, sequence<I...>)
    {
        detail::swallow{(f(at<I>(make_index_sequence<sizeof...(Lengths)>{})), 0)...};
    }

    template <index_t I, index_t... D>
    CK_TILE_HOST_DEVICE static constexpr auto at(sequence<D...>)
    {
        return sequence<tilewright_ck::stop_of<I, false, sequence<Lengths...>, sequence<Order...>>.of[D]...>{};
    }
};

template <index_t... Lengths, index_t... Order>
struct static_ford<const sequence<Lengths...>, sequence<Order...>>
    : static_ford<sequence<Lengths...>, sequence<Order...>>
{
};

template <index_t... Lengths, index_t... Order, index_t... Step, bool Snake>
struct space_filling_curve<sequence<Lengths...>, sequence<Order...>, sequence<Step...>, Snake>
{
    static constexpr index_t nDim            = sizeof...(Lengths);
    static constexpr index_t TensorSize      = (Lengths * ... * 1);
    static constexpr index_t ScalarPerVector = (Step * ... * 1);
    static_assert(TensorSize > 0, "space_filling_curve should be used to access a non-empty tensor");

    using Index = multi_index<nDim>;

    static constexpr auto access_lengths         = sequence<(Lengths / Step)...>{};
    static constexpr auto dim_access_order       = sequence<Order...>{};
    static constexpr auto ordered_access_lengths = sequence<access_lengths.at(Order)...>{};

    CK_TILE_HOST_DEVICE static constexpr index_t get_num_of_access()
    {
        static_assert(((Lengths % Step == 0) && ...));
        return TensorSize / ScalarPerVector;
    }

    template <index_t I>
    CK_TILE_HOST_DEVICE static constexpr auto get_index(number<I>)
    {
        return at<I>(make_index_sequence<nDim>{});
    }

    template <index_t Head, index_t Tail>
    CK_TILE_HOST_DEVICE static constexpr auto get_step_between(number<Head>, number<Tail>)
    {
        static_assert(Head >= 0 && Head < get_num_of_access() && Tail >= 0 && Tail < get_num_of_access());
        return between<Head, Tail>(make_index_sequence<nDim>{});
    }

    template <index_t I>
    CK_TILE_HOST_DEVICE static constexpr auto get_forward_step(number<I>)
    {
        return get_step_between(number<I>{}, number<I + 1>{});
    }

    template <index_t I>
    CK_TILE_HOST_DEVICE static constexpr auto get_backward_step(number<I>)
    {
        return get_step_between(number<I>{}, number<I - 1>{});
    }

    private:
    template <index_t I>
    static constexpr tilewright_ck::Numbers<nDim> stop_ = tilewright_ck::stop<nDim>(
        I, {{Lengths...}}, {{Order...}}, {{Step...}}, Snake);

    template <index_t I, index_t... D>
    CK_TILE_HOST_DEVICE static constexpr auto at(sequence<D...>)
    {
        return tuple<number<stop_<I>.of[D]>...>{};
    }

    template <index_t Head, index_t Tail, index_t... D>
    CK_TILE_HOST_DEVICE static constexpr auto between(sequence<D...>)
    {
        return tuple<number<stop_<Tail>.of[D] - stop_<Head>.of[D]>...>{};
    }
};

template <index_t... Lengths, typename Order, typename Step, bool Snake>
struct space_filling_curve<const sequence<Lengths...>, Order, Step, Snake>
    : space_filling_curve<sequence<Lengths...>, Order, Step, Snake>
{
};

template <index_t... Lengths, index_t... Order, typename Step, bool Snake>
struct space_filling_curve<sequence<Lengths...>, const sequence<Order...>, Step, Snake>
    : space_filling_curve<sequence<Lengths...>, sequence<Order...>, Step, Snake>
{
};

template <index_t... Lengths, index_t... Order, index_t... Step, bool Snake>
struct space_filling_curve<sequence<Lengths...>, sequence<Order...>, const sequence<Step...>, Snake>
    : space_filling_curve<sequence<Lengths...>, sequence<Order...>, sequence<Step...>, Snake>
{
};

} // namespace ck_tile

#endif
#endif
