// Cheaper ways to the same answers, for the CK Tile metafunctions that cost the compiler most.
//
// Each is a partial specialisation of a CK Tile template for the arguments that kernels use. It gives the types and
// values of the original, computed by plain loops over arrays instead of recursive instantiation: the same code comes
// out and the compiler is asked less. With TILEWRIGHT_NO_SHORTCUTS defined, CK Tile's own are used.
#ifndef TILEWRIGHT_CK_SHORTCUTS_HPP
#define TILEWRIGHT_CK_SHORTCUTS_HPP
#ifndef TILEWRIGHT_NO_SHORTCUTS

#include "ck_tile/core/arch/arch.hpp" // get_thread_id, which headers below call without including it
#include "ck_tile/core/container/sequence.hpp"
#include "ck_tile/core/algorithm/space_filling_curve.hpp"
#include "ck_tile/core/tensor/tensor_adaptor_coordinate.hpp"
#include "ck_tile/core/tensor/tile_distribution.hpp"
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

// Where a hidden dimension comes from: the transform that makes it, and which of its upper dimensions it is.
struct Origin
{
    index_t transform = 0;
    index_t upper     = 0;
    bool found        = false;
};

template <typename Lower, typename Upper>
struct Origins;

template <typename... Lower, typename... Upper>
struct Origins<ck_tile::tuple<Lower...>, ck_tile::tuple<Upper...>>
{
    CK_TILE_HOST_DEVICE static constexpr Origin origin(index_t hidden)
    {
        Origin result     = {};
        index_t transform = 0;
        const auto look   = [&](auto upper) {
            for(index_t i = 0; i < upper.size(); ++i)
                if(upper.at(i) == hidden)
                    result = {transform, i, true};
            ++transform;
        };
        (look(Upper{}), ...);
        return result;
    }

    static constexpr index_t hidden = [] {
        constexpr index_t total = (Lower::size() + ... + 0) + (Upper::size() + ... + 0);
        Numbers<total> ids      = {};
        index_t count           = 0;
        const auto add          = [&](auto listed) {
            for(index_t i = 0; i < listed.size(); ++i)
                ids.of[count++] = listed.at(i);
        };
        (add(Lower{}), ...);
        (add(Upper{}), ...);
        return sort(ids, true).distinct;
    }();
};

// Which transforms see a difference when the top dimensions move by known amounts.
template <typename Lower, typename Upper, typename Top>
struct Moves;

template <typename... Lower, typename... Upper, index_t... Top>
struct Moves<ck_tile::tuple<Lower...>, ck_tile::tuple<Upper...>, ck_tile::sequence<Top...>>
{
    static constexpr index_t num_transforms = sizeof...(Lower);

    template <index_t I>
    using lower = __type_pack_element<I, Lower...>;
    template <index_t I>
    using upper = __type_pack_element<I, Upper...>;

    CK_TILE_HOST_DEVICE static constexpr auto needed(const Numbers<sizeof...(Top)>& differences)
    {
        Numbers<Origins<ck_tile::tuple<Lower...>, ck_tile::tuple<Upper...>>::hidden> moved = {};
        Numbers<num_transforms> result                                                     = {};
        constexpr index_t tops[]                                                           = {Top...};
        for(index_t i = 0; i < index_t{sizeof...(Top)}; ++i)
            moved.of[tops[i]] = differences.of[i] != 0;
        judge(moved, result, ck_tile::make_index_sequence<num_transforms>{});
        return result;
    }

    private:
    template <typename Moved, typename Result, index_t... I>
    CK_TILE_HOST_DEVICE static constexpr void judge(Moved& moved, Result& result, ck_tile::sequence<I...>)
    {
        // From the last transform, which makes the top dimensions, to the first.
        (judge_one<num_transforms - 1 - I>(moved, result), ...);
    }

    template <index_t I, typename Moved, typename Result>
    CK_TILE_HOST_DEVICE static constexpr void judge_one(Moved& moved, Result& result)
    {
        for(index_t i = 0; i < upper<I>::size(); ++i)
            result.of[I] |= moved.of[upper<I>::at(i)];
        for(index_t i = 0; i < lower<I>::size(); ++i)
            moved.of[lower<I>::at(i)] = result.of[I];
    }
};

// How a tile distribution numbers its dimensions: the x dimensions, then the minor ones of r and of each h, then p.
template <typename Rs, typename... Hs>
struct Numbering
{
    static constexpr index_t num_x     = sizeof...(Hs);
    static constexpr index_t num_minor = Rs::size() + (Hs::size() + ... + 0);

    // The first number of each major dimension: r, then each h.
    static constexpr Numbers<num_x + 1> first = [] {
        constexpr index_t sizes[] = {Rs::size(), Hs::size()...};
        Numbers<num_x + 1> result = {{num_x}};
        for(index_t i = 0; i < num_x; ++i)
            result.of[i + 1] = result.of[i] + sizes[i];
        return result;
    }();

    static constexpr Numbers<num_minor> lengths = [] {
        Numbers<num_minor> result = {};
        index_t count             = 0;
        const auto add            = [&](auto minor) {
            for(index_t i = 0; i < minor.size(); ++i)
                result.of[count++] = minor.at(i);
        };
        add(Rs{});
        (add(Hs{}), ...);
        return result;
    }();

    template <index_t Major, index_t Minor>
    static constexpr index_t number = first.of[Major] + Minor;
    template <index_t Major, index_t Minor>
    static constexpr index_t length = lengths.of[number<Major, Minor> - num_x];
};

// The sequence First, First + 1, …
template <index_t First, index_t... I>
CK_TILE_HOST_DEVICE constexpr auto from(ck_tile::sequence<I...>)
{
    return ck_tile::sequence<(First + I)...>{};
}

template <index_t First, index_t Count>
using From = decltype(from<First>(ck_tile::make_index_sequence<Count>{}));

// Numbers and lengths of the dimensions that a p or all y are made of.
template <typename Numbering, typename Majors, typename Minors>
struct Parts;

template <typename Numbering, index_t... Major, index_t... Minor>
struct Parts<Numbering, ck_tile::sequence<Major...>, ck_tile::sequence<Minor...>>
{
    using numbers = ck_tile::sequence<Numbering::template number<Major, Minor>...>;
    using lengths = ck_tile::tuple<ck_tile::number<Numbering::template length<Major, Minor>>...>;

    static constexpr index_t size = (Numbering::template length<Major, Minor> * ... * 1);
};

template <index_t... Length>
CK_TILE_HOST_DEVICE constexpr auto as_tuple(ck_tile::sequence<Length...>)
{
    return ck_tile::tuple<ck_tile::number<Length>...>{};
}

template <typename Lower, typename Upper, typename Bottom, typename Top, typename... Transforms>
CK_TILE_HOST_DEVICE constexpr auto adaptor(const Transforms&... transforms)
{
    return ck_tile::tensor_adaptor<ck_tile::tuple<Transforms...>, Lower, Upper, Bottom, Top>{
        ck_tile::tuple<Transforms...>{transforms...}};
}

template <typename Encoding, typename Numbering, typename Y, typename Rs, typename Hss>
struct Distribution;

template <typename Encoding, typename Numbering, typename Y, typename Rs, typename... Hs>
struct Distribution<Encoding, Numbering, Y, Rs, ck_tile::tuple<Hs...>>
{
    template <index_t... X, index_t... P, typename... Ps>
    CK_TILE_HOST_DEVICE static constexpr auto
    make(ck_tile::sequence<X...>, ck_tile::sequence<P...> p, Ps...)
    {
        using namespace ck_tile;
        using R        = From<Numbering::first.of[0], Rs::size()>;
        using OneY     = From<1, Y::numbers::size()>;
        using Majors   = tuple<R, From<Numbering::first.of[X + 1], Hs::size()>...>;
        using Lower    = tuple<sequence<>, sequence<X>..., typename Ps::numbers...>;
        using Upper    = tuple<R, From<Numbering::first.of[X + 1], Hs::size()>..., sequence<P>...>;
        using Top      = decltype(p.push_back(typename Y::numbers{}));
        constexpr auto to_x = adaptor<Lower, Upper, sequence<X...>, Top>(
            make_replicate_transform(as_tuple(Rs{})),
            make_unmerge_transform(as_tuple(Hs{}))...,
            make_merge_transform(typename Ps::lengths{})...);
        constexpr auto to_d = adaptor<tuple<sequence<0>>, tuple<OneY>, sequence<0>, OneY>(
            make_unmerge_transform(typename Y::lengths{}));
        constexpr auto described = make_tensor_descriptor_from_adaptor(to_d, number<Y::size>{});
        return tile_distribution<remove_cvref_t<decltype(to_x)>,
                                 remove_cvref_t<decltype(described)>,
                                 Encoding,
                                 detail::tile_distribution_detail<Majors>>{to_x, described};
    }
};

} // namespace tilewright_ck

namespace ck_tile {

// CK Tile of 2026 has such loops itself, and there its sort keeps equal values in their order.
#if !__has_include("ck_tile/core/container/static_array.hpp")

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

#endif

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

template <index_t... Values, index_t Init>
CK_TILE_HOST_DEVICE constexpr auto
container_reduce(const tuple<constant<Values>...>&, multiplies<void, void>, constant<Init>)
{
    return number<(Values * ... * Init)>{};
}

// An adaptor looks up where a dimension comes from in a table, and takes static indices as plain numbers: one
// instantiation serves all elements of a tile.
template <typename... Transforms, typename... Lower, typename... Upper, index_t... Bottom, index_t... Top>
struct tensor_adaptor<tuple<Transforms...>, tuple<Lower...>, tuple<Upper...>, sequence<Bottom...>, sequence<Top...>>
{
    static_assert(sizeof...(Transforms) == sizeof...(Lower) && sizeof...(Transforms) == sizeof...(Upper));

    // clang-format off
    CK_TILE_HOST_DEVICE static constexpr index_t get_num_of_transform() { return sizeof...(Transforms); }
    CK_TILE_HOST_DEVICE static constexpr index_t get_num_of_bottom_dimension() { return sizeof...(Bottom); }
    CK_TILE_HOST_DEVICE static constexpr index_t get_num_of_top_dimension() { return sizeof...(Top); }
    CK_TILE_HOST_DEVICE static constexpr index_t get_num_of_hidden_dimension() { return Table::hidden; }
    CK_TILE_HOST_DEVICE static constexpr auto get_lower_dimension_hidden_idss() { return tuple<Lower...>{}; }
    CK_TILE_HOST_DEVICE static constexpr auto get_upper_dimension_hidden_idss() { return tuple<Upper...>{}; }
    CK_TILE_HOST_DEVICE static constexpr auto get_bottom_dimension_hidden_ids() { return sequence<Bottom...>{}; }
    CK_TILE_HOST_DEVICE static constexpr auto get_top_dimension_hidden_ids() { return sequence<Top...>{}; }
    CK_TILE_HOST_DEVICE constexpr const auto& get_transforms() const { return transforms_; }
    CK_TILE_HOST_DEVICE constexpr auto get_element_size() const { return element_size_; }
    // clang-format on

    private:
    using Table = tilewright_ck::Origins<tuple<Lower...>, tuple<Upper...>>;

    // The length of a hidden dimension, as the transform that makes it states it.
    template <index_t Hidden>
    CK_TILE_HOST_DEVICE static constexpr auto length_of(const tuple<Transforms...>& transforms)
    {
        constexpr tilewright_ck::Origin origin = Table::origin(Hidden);
        static_assert(origin.found, "no transform makes this dimension");
        return transforms[number<origin.transform>{}].get_upper_lengths()[number<origin.upper>{}];
    }

    public:
    CK_TILE_HOST_DEVICE static constexpr auto initialize_element_size(const tuple<Transforms...>& transforms)
    {
        return container_reduce(make_tuple(length_of<Top>(transforms)...), multiplies{}, number<1>{});
    }

    template <index_t Hidden>
    CK_TILE_HOST_DEVICE static constexpr auto get_transform_and_its_upper_dimension(number<Hidden>)
    {
        constexpr tilewright_ck::Origin origin = Table::origin(Hidden);
        return make_tuple(index_t{origin.transform}, index_t{origin.upper}, bool{origin.found});
    }

    static constexpr index_t ntransform_  = sizeof...(Transforms);
    static constexpr index_t ndim_hidden_ = Table::hidden;
    static constexpr index_t ndim_bottom_ = sizeof...(Bottom);
    static constexpr index_t ndim_top_    = sizeof...(Top);

    using HiddenIndex = multi_index<ndim_hidden_>;
    using BottomIndex = multi_index<ndim_bottom_>;
    using TopIndex    = multi_index<ndim_top_>;
    using ElementSize = remove_cv_t<decltype(initialize_element_size(tuple<Transforms...>{}))>;

    CK_TILE_HOST_DEVICE constexpr tensor_adaptor() = default;

    CK_TILE_HOST_DEVICE constexpr tensor_adaptor(const tuple<Transforms...>& transforms)
        : transforms_{transforms}, element_size_{initialize_element_size(transforms)}
    {
    }

    template <index_t Hidden>
    CK_TILE_HOST_DEVICE constexpr auto get_hidden_dimension_length(number<Hidden>) const
    {
        return length_of<Hidden>(transforms_);
    }

    template <index_t I>
    CK_TILE_HOST_DEVICE constexpr auto get_top_dimension_length(number<I>) const
    {
        return length_of<sequence<Top...>::at(I)>(transforms_);
    }

    CK_TILE_HOST_DEVICE constexpr auto get_top_dimension_lengths() const
    {
        return make_tuple(length_of<Top>(transforms_)...);
    }

    template <index_t... I>
    CK_TILE_HOST_DEVICE constexpr auto calculate_bottom_index(const sequence<I...>&) const
    {
        return calculate_bottom_index(TopIndex{I...});
    }

    template <typename Index>
    CK_TILE_HOST_DEVICE constexpr auto calculate_bottom_index(const Index& index) const
    {
        static_assert(Index::size() == sizeof...(Top));
        HiddenIndex hidden;
        set_container_subset(hidden, sequence<Top...>{}, index);
        go_down(hidden, make_index_sequence<ntransform_>{});
        return get_container_subset(hidden, sequence<Bottom...>{});
    }

    CK_TILE_HOST_DEVICE static constexpr bool is_static()
    {
        return (Transforms::is_known_at_compile_time() && ...) &&
               ck_tile::is_known_at_compile_time<ElementSize>::value;
    }

    CK_TILE_HOST_DEVICE static constexpr bool is_known_at_compile_time() { return is_static(); }

    // How many neighbours of each top dimension lie in one access, if each hidden dimension guarantees the given.
    template <index_t Internal = 0>
    CK_TILE_HOST_DEVICE static constexpr auto
    get_top_dimension_safe_vector_length_strides(const array<index_t, ndim_hidden_>& known_lengths,
                                                 const array<index_t, ndim_hidden_>& known_strides)
    {
        constexpr index_t steps = Internal > 0 && Internal < ntransform_ ? Internal : ntransform_;
        auto lengths            = known_lengths;
        auto strides            = known_strides;
        go_up(lengths, strides, known_lengths, known_strides, make_index_sequence<steps>{});
        if constexpr(Internal > 0)
            return make_tuple(lengths, strides);
        else
            return make_tuple(get_container_subset(lengths, sequence<Top...>{}),
                              get_container_subset(strides, sequence<Top...>{}));
    }

    private:
    template <index_t... I>
    CK_TILE_HOST_DEVICE constexpr void go_down(HiddenIndex& hidden, sequence<I...>) const
    {
        (go_down_one<ntransform_ - 1 - I>(hidden), ...);
    }

    template <index_t I>
    CK_TILE_HOST_DEVICE constexpr void go_down_one(HiddenIndex& hidden) const
    {
        using Low        = __type_pack_element<I, Lower...>;
        const auto upper = get_container_subset(hidden, __type_pack_element<I, Upper...>{});
        multi_index<Low::size()> lower;
        transforms_.at(number<I>{}).calculate_lower_index(lower, upper);
        set_container_subset(hidden, Low{}, lower);
    }

    template <typename Known, index_t... I>
    CK_TILE_HOST_DEVICE static constexpr void
    go_up(Known& lengths, Known& strides, const Known& known_lengths, const Known& known_strides, sequence<I...>)
    {
        (go_up_one<I>(lengths, strides, known_lengths, known_strides), ...);
    }

    template <index_t I, typename Known>
    CK_TILE_HOST_DEVICE static constexpr void
    go_up_one(Known& lengths, Known& strides, const Known& known_lengths, const Known& known_strides)
    {
        using Low           = __type_pack_element<I, Lower...>;
        using Up            = __type_pack_element<I, Upper...>;
        using Transform     = __type_pack_element<I, Transforms...>;
        auto [length, stride] = Transform{}.calculate_upper_dimension_safe_vector_length_strides(
            get_container_subset(lengths, Low{}), get_container_subset(strides, Low{}));
        if constexpr(Up::size() > 0) // an empty array has no elements to name
            for(index_t i = 0; i < Up::size(); ++i)
            {
                const index_t hidden = Up::at(i);
                lengths(hidden)      = known_lengths[hidden] != -1 ? known_lengths[hidden] : length[i];
                strides(hidden)      = known_strides[hidden] != -1 ? known_strides[hidden] : stride[i];
            }
    }

    tuple<Transforms...> transforms_;
    ElementSize element_size_;
};

// Moving a coordinate by amounts that are known: only the transforms that see a difference are asked.
template <bool Judge = true, typename Adaptor, typename Coordinate, index_t... Difference, typename BottomIndex>
CK_TILE_HOST_DEVICE constexpr void move_tensor_adaptor_coordinate(const Adaptor& adaptor,
                                                                  Coordinate& coordinate,
                                                                  const tuple<constant<Difference>...>&,
                                                                  BottomIndex& bottom)
{
    using Top     = decltype(Adaptor::get_top_dimension_hidden_ids());
    using Moves   = tilewright_ck::Moves<decltype(Adaptor::get_lower_dimension_hidden_idss()),
                                         decltype(Adaptor::get_upper_dimension_hidden_idss()), Top>;
    constexpr auto needed = Moves::needed({{Difference...}});

    auto moved   = make_zero_multi_index<Adaptor::get_num_of_hidden_dimension()>();
    auto& hidden = coordinate.get_hidden_index();
    constexpr multi_index<sizeof...(Difference)> differences{Difference...};
    for(index_t i = 0; i < Top::size(); ++i)
    {
        moved(Top::at(i)) = differences[i];
        hidden(Top::at(i)) += differences[i];
    }
    static_for<0, Moves::num_transforms, 1>{}([&](auto step) {
        constexpr index_t i = Moves::num_transforms - 1 - step.value;
        if constexpr(!Judge || needed.of[i] != 0)
        {
            using Low              = typename Moves::template lower<i>;
            using Up               = typename Moves::template upper<i>;
            const auto upper       = get_container_subset(hidden, Up{});
            auto lower             = get_container_subset(hidden, Low{});
            const auto upper_moved = get_container_subset(moved, Up{});
            multi_index<Low::size()> lower_moved;
            adaptor.get_transforms().at(number<i>{}).update_lower_index(lower_moved, upper_moved, lower, upper);
            set_container_subset(moved, Low{}, lower_moved);
            set_container_subset(hidden, Low{}, lower);
        }
    });
    bottom = get_container_subset(moved, Adaptor::get_bottom_dimension_hidden_ids());
}

// The distribution of a static encoding, put together from its parts without a detour through encoded arrays.
template <typename Rs,
          typename... Hs,
          typename... PMajor,
          typename... PMinor,
          typename YMajor,
          typename YMinor>
CK_TILE_HOST_DEVICE constexpr auto make_static_tile_distribution(
    tile_distribution_encoding<Rs, tuple<Hs...>, tuple<PMajor...>, tuple<PMinor...>, YMajor, YMinor>)
{
    using Encoding  = tile_distribution_encoding<Rs, tuple<Hs...>, tuple<PMajor...>, tuple<PMinor...>, YMajor, YMinor>;
    using Numbering = tilewright_ck::Numbering<Rs, Hs...>;
    using X         = make_index_sequence<Numbering::num_x>;
    using P         = tilewright_ck::From<Numbering::num_x + Numbering::num_minor, sizeof...(PMajor)>;
    using Y         = tilewright_ck::Parts<Numbering, YMajor, YMinor>;
    return tilewright_ck::Distribution<Encoding, Numbering, Y, Rs, tuple<Hs...>>::make(
        X{}, P{}, tilewright_ck::Parts<Numbering, PMajor, PMinor>{}...);
}

} // namespace ck_tile

#endif
#endif
