// Loops over known elements, for the edited copies of CK Tile's headers; see ck_edits.py.
//
// CK Tile passes a lambda to a loop, and the compiler makes one function per element of it, and more for each index.
// These make one function for all elements: places are computed once, as a table, and the code of all elements is
// one expression.
#ifndef TILEWRIGHT_CK_LOOPS_HPP
#define TILEWRIGHT_CK_LOOPS_HPP

#include "ck_tile/core/container/array.hpp"
#include "ck_tile/core/container/multi_index.hpp"
#include "ck_tile/core/container/sequence.hpp"
#include "ck_tile/core/container/tuple.hpp"

namespace ck_tile {

template <index_t...>
struct tile_distributed_index;

} // namespace ck_tile

namespace tilewright_ck {

template <ck_tile::index_t N>
struct Places
{
    ck_tile::index_t of[N > 0 ? N : 1] = {};
};

// The index that is j further than a known one in a dimension.
template <ck_tile::index_t Dimension, typename... Starts>
CK_TILE_HOST_DEVICE constexpr auto advance(const ck_tile::tuple<Starts...>&, ck_tile::index_t j)
{
    ck_tile::multi_index<sizeof...(Starts)> result{Starts::value...};
    result(Dimension) += j;
    return result;
}

// The elements of a vector of a tile window, and their places in a thread's buffer.
template <typename Traits, typename Descriptor, typename Start>
struct VectorElements;

template <typename Traits, typename Descriptor, typename... Starts>
struct VectorElements<Traits, Descriptor, ck_tile::tuple<Starts...>>
{
    static constexpr ck_tile::index_t size = Traits::ScalarPerVector / Traits::PackedSize;
    using All                              = ck_tile::make_index_sequence<size>;

    // A function: clang evaluates the value of a static member three times, that of a local variable once.
    CK_TILE_HOST_DEVICE static constexpr Places<size> find_places()
    {
        Places<size> result = {};
        ck_tile::multi_index<sizeof...(Starts)> at{Starts::value...};
        for(ck_tile::index_t j = 0; j < size; ++j, at(Traits::VectorDimY) += Traits::PackedSize)
            result.of[j] = Descriptor{}.calculate_offset(at) / Traits::PackedSize;
        return result;
    }

    template <typename Buffer, typename Vector, ck_tile::index_t... J>
    CK_TILE_DEVICE static void load(Buffer& buffer, const Vector& vector, ck_tile::sequence<J...>)
    {
        constexpr Places<size> places = find_places();
        ((buffer.template at<places.of[J]>() = vector[J]), ...);
    }

    template <typename Vector, typename Buffer, ck_tile::index_t... J>
    CK_TILE_DEVICE static void store(Vector& vector, const Buffer& buffer, ck_tile::sequence<J...>)
    {
        constexpr Places<size> places = find_places();
        ((vector(J) = buffer.template at<places.of[J]>()), ...);
    }
};

// The elements of a slice of a thread's buffer, the last dimension fastest, and their places in the buffer.
template <typename Descriptor, ck_tile::index_t PackedSize, typename Origins, typename Lengths>
struct SliceElements;

template <typename Descriptor, ck_tile::index_t PackedSize, ck_tile::index_t... Origins, ck_tile::index_t... Lengths>
struct SliceElements<Descriptor, PackedSize, ck_tile::sequence<Origins...>, ck_tile::sequence<Lengths...>>
{
    static constexpr ck_tile::index_t size = (Lengths * ... * 1);
    using All                              = ck_tile::make_index_sequence<size>;

    CK_TILE_HOST_DEVICE static constexpr Places<size> find_places()
    {
        constexpr ck_tile::index_t n          = sizeof...(Lengths);
        constexpr ck_tile::index_t lengths[n] = {Lengths...};
        Places<size> result                   = {};
        for(ck_tile::index_t i = 0; i < size; ++i)
        {
            ck_tile::multi_index<n> at{Origins...};
            for(ck_tile::index_t d = n - 1, rest = i; d >= 0; rest /= lengths[d], --d)
                at(d) += rest % lengths[d];
            result.of[i] = Descriptor{}.calculate_offset(at) / PackedSize;
        }
        return result;
    }

    template <typename Part, typename Whole, ck_tile::index_t... I>
    CK_TILE_HOST_DEVICE static void get(Part& part, const Whole& whole, ck_tile::sequence<I...>)
    {
        constexpr Places<size> places = find_places();
        ((part(ck_tile::number<I / PackedSize>{}) = whole[ck_tile::number<places.of[I]>{}]), ...);
    }

    template <typename Part, typename Whole, ck_tile::index_t... I>
    CK_TILE_HOST_DEVICE static void set(const Part& part, Whole& whole, ck_tile::sequence<I...>)
    {
        constexpr Places<size> places = find_places();
        ((whole(ck_tile::number<places.of[I]>{}) = part[ck_tile::number<I / PackedSize>{}]), ...);
    }
};

// The index of an element of a distributed tile along one span. No span of CK Tile has more than 10 dimensions, the
// limit of its encodings.
struct SpanIndex
{
    ck_tile::index_t of[10];
};

template <ck_tile::index_t... I>
CK_TILE_HOST_DEVICE constexpr SpanIndex read_index(const ck_tile::tile_distributed_index<I...>*)
{
    return {{I...}};
}

// One function for all elements of a tile.
template <typename Encoding, ck_tile::index_t N>
CK_TILE_HOST_DEVICE constexpr ck_tile::multi_index<N> find_ys_at(const SpanIndex* spans)
{
    ck_tile::multi_index<N> result{};
    if constexpr(N > 0) // an empty array has no elements to name
        for(ck_tile::index_t i = 0; i < N; ++i)
            result(i) = spans[Encoding::detail::ys_to_span_major_[i]].of[Encoding::detail::ys_to_span_minor_[i]];
    return result;
}

// The indices of an element in a thread's buffer. Pointers: no tuple needs to be made.
template <typename Encoding, ck_tile::index_t N, typename... Spans>
CK_TILE_HOST_DEVICE constexpr ck_tile::multi_index<N> find_ys(const ck_tile::tuple<Spans...>*)
{
    const SpanIndex spans[] = {read_index(static_cast<const Spans*>(nullptr))...};
    return find_ys_at<Encoding, N>(spans);
}

// The place of an element in a thread's buffer.
template <typename Distribution, typename Descriptor, typename... Spans>
CK_TILE_HOST_DEVICE constexpr ck_tile::index_t find_place(const ck_tile::tuple<Spans...>*)
{
    const SpanIndex spans[] = {read_index(static_cast<const Spans*>(nullptr))...};
    return Descriptor{}.calculate_offset(find_ys_at<typename Distribution::DstrEncode, Distribution::NDimY>(spans));
}

template <ck_tile::index_t... Lengths>
CK_TILE_HOST_DEVICE constexpr ck_tile::index_t count_behind(ck_tile::index_t dimension)
{
    constexpr ck_tile::index_t lengths[] = {Lengths..., 1};
    ck_tile::index_t result              = 1;
    for(ck_tile::index_t i = dimension + 1; i < static_cast<ck_tile::index_t>(sizeof...(Lengths)); ++i)
        result *= lengths[i];
    return result;
}

// Step I of a walk over a span, the last dimension fastest.
template <ck_tile::index_t I, typename Lengths, typename Dimensions>
struct SpanStep;

template <ck_tile::index_t I, ck_tile::index_t... Lengths, ck_tile::index_t... D>
struct SpanStep<I, ck_tile::sequence<Lengths...>, ck_tile::sequence<D...>>
{
    using Index = ck_tile::tile_distributed_index<(I / count_behind<Lengths...>(D) % Lengths)...>;
};

// A line is a function of its own, as in CK Tile: the inliner then decides alike, and the code is the same.
template <typename Lengths, ck_tile::index_t First, typename F, ck_tile::index_t... I>
CK_TILE_DEVICE void sweep_line(const F& f, ck_tile::sequence<I...>)
{
    using Dimensions = ck_tile::make_index_sequence<Lengths::size()>;
    (f(typename SpanStep<First + I, Lengths, Dimensions>::Index{}), ...);
}

template <typename Lengths, ck_tile::index_t Length, typename F, ck_tile::index_t... Line>
CK_TILE_DEVICE void sweep_lines(const F& f, ck_tile::sequence<Line...>)
{
    (sweep_line<Lengths, Line * Length>(f, ck_tile::make_index_sequence<Length>{}), ...);
}

// Call a function with each index of a span, line by line. clang's limit for such an expression is 256 terms.
template <typename F, ck_tile::index_t... Lengths>
CK_TILE_DEVICE void sweep_span(const F& f, ck_tile::sequence<Lengths...>)
{
    constexpr ck_tile::index_t length = (Lengths, ...);
    constexpr ck_tile::index_t lines  = (Lengths * ... * 1) / length;
    if constexpr(length <= 256 && lines <= 256)
        sweep_lines<ck_tile::sequence<Lengths...>, length>(f, ck_tile::make_index_sequence<lines>{});
    else
        ck_tile::static_ford<ck_tile::sequence<Lengths...>>{}(
            [&](auto index) { f(ck_tile::detail::make_tile_distributed_index(index)); });
}

// Call a function with the elements of one, two or three buffers. More need a function per element, as CK Tile has it.
template <typename F, ck_tile::index_t... I, typename A>
CK_TILE_DEVICE void change_elements(const F& f, ck_tile::sequence<I...>, A& a)
{
    (f(a.at(ck_tile::number<I>{})), ...);
}

template <typename F, ck_tile::index_t... I, typename A, typename B>
CK_TILE_DEVICE void change_elements(const F& f, ck_tile::sequence<I...>, A& a, B& b)
{
    (f(a.at(ck_tile::number<I>{}), b.at(ck_tile::number<I>{})), ...);
}

template <typename F, ck_tile::index_t... I, typename A, typename B, typename C>
CK_TILE_DEVICE void change_elements(const F& f, ck_tile::sequence<I...>, A& a, B& b, C& c)
{
    (f(a.at(ck_tile::number<I>{}), b.at(ck_tile::number<I>{}), c.at(ck_tile::number<I>{})), ...);
}

template <typename F, ck_tile::index_t... I, typename... Buffers>
CK_TILE_DEVICE void change_elements(const F& f, ck_tile::sequence<I...>, Buffers&... buffers)
{
    const auto change = [&](auto i) { f(buffers.at(i)...); };
    (change(ck_tile::number<I>{}), ...);
}

// Set each element of a buffer to the result of a function of the elements of others.
template <typename F, ck_tile::index_t... I, typename Out, typename A>
CK_TILE_DEVICE void set_elements(const F& f, ck_tile::sequence<I...>, Out& out, const A& a)
{
    ((out(ck_tile::number<I>{}) = f(a[ck_tile::number<I>{}])), ...);
}

template <typename F, ck_tile::index_t... I, typename Out, typename A, typename B>
CK_TILE_DEVICE void set_elements(const F& f, ck_tile::sequence<I...>, Out& out, const A& a, const B& b)
{
    ((out(ck_tile::number<I>{}) = f(a[ck_tile::number<I>{}], b[ck_tile::number<I>{}])), ...);
}

template <typename F, ck_tile::index_t... I, typename Out, typename... Buffers>
CK_TILE_DEVICE void set_elements(const F& f, ck_tile::sequence<I...>, Out& out, const Buffers&... buffers)
{
    const auto set = [&](auto i) { out(i) = f(buffers[i]...); };
    (set(ck_tile::number<I>{}), ...);
}

} // namespace tilewright_ck

#endif // TILEWRIGHT_CK_LOOPS_HPP
