"""Edited copies of some CK Tile headers that cost the compiler less and give the same code.

`ck_shortcuts.hpp` replaces CK Tile's templates by specialisations. That is not possible for loops in the middle of its
functions, so those are edited: each edit names the C++ text that it replaces. A tree that lacks one of these texts is
another generation, and is compiled as it is, only slower. The copies precede CK's folder in the include path of kernels
that include `ck_shortcuts.hpp`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.digest import digest_value

LOOPS = Path(__file__).with_name("ck_loops.hpp")
LOOPS_NAME = "tilewright_ck_loops.hpp"


@dataclass(frozen=True, slots=True)
class HeaderEdit:
    """A change of a header: all occurrences of a text, whatever the white space between its tokens."""

    header: str  # below the include folder
    old: str
    new: str


_CORE = "ck_tile/core"
# The index of element j of a vector: CK Tile makes one function per element and dimension.
_INDEX = (
    "generate_tuple([&](auto jj) { return jj == Traits::VectorDimY ? (idx_ys_start[jj] + j) : idx_ys_start[jj]; }, "
    "number<Base::NDimY>{})"
)
_VECTOR_LOOP = (
    "static_for<0, Traits::ScalarPerVector, Traits::PackedSize>{}([&](auto j) { "
    f"constexpr auto idx_ys = {_INDEX}; "
    "constexpr index_t d = tile_dstr.get_ys_to_d_descriptor().calculate_offset(idx_ys) / Traits::PackedSize; "
)
_VECTOR = (
    "using Elements = ::tilewright_ck::VectorElements<Traits, "
    "remove_cvref_t<decltype(tile_dstr.get_ys_to_d_descriptor())>, remove_cvref_t<decltype(idx_ys_start)>>; "
)
_SLICE_LOOP = (
    "static_ford<sequence<YSliceLengths...>>{}([&](auto idx) { "
    "constexpr auto idx_ys = idx + sequence<YSliceOrigins...>{}; "
)
_SLICE_PLACE = "number<sliced_thread_tensor_desc.calculate_offset(idx) / PackedSize>{}"
_BUFFER_PLACE = "number<ThreadTensorDesc{}.calculate_offset(idx_ys) / PackedSize>{}"
_SLICE = (
    "using Elements = ::tilewright_ck::SliceElements<ThreadTensorDesc, PackedSize, sequence<YSliceOrigins...>, "
    "sequence<YSliceLengths...>>; "
)
_WINDOW = f"{_CORE}/tensor/tile_window.hpp"
_WINDOW_BASE = f"{_CORE}/tensor/tile_window_base.hpp"
_TENSOR = f"{_CORE}/tensor/static_distributed_tensor.hpp"
_SWEEP = f"{_CORE}/tensor/sweep_tile.hpp"
_ELEMENTWISE = f"{_CORE}/tensor/tile_elementwise.hpp"
_TUPLE = f"{_CORE}/container/tuple.hpp"
# An element of a distributed tile by its index: CK Tile makes four functions to find its place.
_STATIC_INDEX = (
    'static_assert(is_static_v<TileDistributedIndices>, "wrong! Tile Distributed Indices should be static"); '
    "constexpr auto y_idx = get_tile_distribution().get_y_indices_from_distributed_indices(TileDistributedIndices{});"
)
_ELEMENT_PLACE = (
    "constexpr index_t place = ::tilewright_ck::find_place<StaticTileDistribution, ThreadTensorDesc>("
    "static_cast<const TileDistributedIndices*>(nullptr)) / PackedSize;"
)
_FIND_YS = (
    "::tilewright_ck::find_ys<typename StaticTileDistribution::DstrEncode, StaticTileDistribution::NDimY>("
    "static_cast<const DistributedIndices*>(nullptr))"
)
_COORDINATE = (
    "const auto x_coord = make_tensor_adaptor_coordinate(tile_distribution.get_ps_ys_to_xs_adaptor(), "
    "container_concat(partition_index, "
)
_CHOICE = "get_vector_dim_y_scalar_per_vector()"

# In this order: a later edit may be part of the text of an earlier one.
EDITS = (
    HeaderEdit(
        _WINDOW,
        f"{_VECTOR_LOOP} dst_tensor.get_thread_buffer().template at<d>() = "
        "vec_value.template get_as<typename Base::DataType>()[j / Traits::PackedSize]; });",
        f"{_VECTOR} Elements::load(dst_tensor.get_thread_buffer(), "
        "vec_value.template get_as<typename Base::DataType>(), typename Elements::All{});",
    ),
    HeaderEdit(
        _WINDOW,
        f"{_VECTOR_LOOP} vec_value.template get_as<typename Base::DataType>()(j / Traits::PackedSize) = "
        "dstr_tensor.get_thread_buffer().template at<d>(); });",
        f"{_VECTOR} Elements::store(vec_value.template get_as<typename Base::DataType>(), "
        "dstr_tensor.get_thread_buffer(), typename Elements::All{});",
    ),
    HeaderEdit(_WINDOW, _INDEX, "::tilewright_ck::advance<Traits::VectorDimY>(idx_ys_start, j)"),
    # The choice of the vector is evaluated once: clang evaluates the value of a static member three times, that of a
    # local variable once.
    HeaderEdit(
        _WINDOW_BASE,
        f"static constexpr index_t VectorDimY = {_CHOICE}.template at<0>(); "
        f"static constexpr index_t ScalarPerVector = {_CHOICE}.template at<1>();",
        f"static constexpr auto choose_vector() {{ constexpr auto chosen = {_CHOICE}; "
        "return sequence<chosen.template at<0>(), chosen.template at<1>()>{}; } "
        "using VectorChoice = decltype(choose_vector()); "
        "static constexpr index_t VectorDimY = VectorChoice::at(0); "
        "static constexpr index_t ScalarPerVector = VectorChoice::at(1);",
    ),
    HeaderEdit(
        _TENSOR,
        f"{_SLICE_LOOP} sliced_thread_data({_SLICE_PLACE}) = thread_buf_[{_BUFFER_PLACE}]; }});",
        f"{_SLICE} Elements::get(sliced_thread_data, thread_buf_, typename Elements::All{{}});",
    ),
    HeaderEdit(
        _TENSOR,
        f"{_SLICE_LOOP} thread_buf_({_BUFFER_PLACE}) = sliced_thread_data[{_SLICE_PLACE}]; }});",
        f"{_SLICE} Elements::set(sliced_thread_data, thread_buf_, typename Elements::All{{}});",
    ),
    HeaderEdit(
        _TENSOR,
        f"{_STATIC_INDEX} return thread_buf_[number<ThreadTensorDesc{{}}.calculate_offset(y_idx) / PackedSize>{{}}];",
        f"{_ELEMENT_PLACE} return thread_buf_[number<place>{{}}];",
    ),
    HeaderEdit(
        _TENSOR,
        f"{_STATIC_INDEX} return thread_buf_(number<ThreadTensorDesc{{}}.calculate_offset(y_idx) / PackedSize>{{}});",
        f"{_ELEMENT_PLACE} return thread_buf_(number<place>{{}});",
    ),
    HeaderEdit(
        _TENSOR,
        "constexpr auto y_indices = tile_distribution.get_y_indices_from_distributed_indices(distributed_indices); "
        f"{_COORDINATE} to_array<ck_tile::index_t, y_indices.size()>(y_indices)));",
        f"constexpr auto y_indices = {_FIND_YS}; {_COORDINATE} y_indices));",
    ),
    HeaderEdit(
        _SWEEP,
        "using DstrSpan = remove_cvref_t<TileDistributedSpan_>; static_ford<typename DstrSpan::Impl>{}("
        "[&](auto dstr_idx_impl) { constexpr auto dstr_idx = detail::make_tile_distributed_index(dstr_idx_impl); "
        "f(dstr_idx); });",
        "::tilewright_ck::sweep_span(f, typename remove_cvref_t<TileDistributedSpan_>::Impl{});",
    ),
    HeaderEdit(
        _ELEMENTWISE,
        "static_for<0, thread_buffer_size, 1>{}([&](auto i) { "
        "inout_element_func(inout_dstr_tensors.get_thread_buffer().at(i)...); });",
        "::tilewright_ck::change_elements(inout_element_func, make_index_sequence<thread_buffer_size>{}, "
        "inout_dstr_tensors.get_thread_buffer()...);",
    ),
    HeaderEdit(
        _ELEMENTWISE,
        "static_for<0, thread_buffer_size, 1>{}([&](auto i) { out_dstr_tensor.get_thread_buffer()(i) = "
        "in_element_func(in_dstr_tensors.get_thread_buffer()[i]...); });",
        "::tilewright_ck::set_elements(in_element_func, make_index_sequence<thread_buffer_size>{}, "
        "out_dstr_tensor.get_thread_buffer(), in_dstr_tensors.get_thread_buffer()...);",
    ),
    # One function less for each access to a tuple, and no types of the standard library for each element.
    HeaderEdit(_TUPLE, "TP_COM_(); return get<I>();", "TP_COM_(); return impl::getv<I>(*this);"),
    HeaderEdit(
        _TUPLE, "!std::is_same<remove_cvref_t<U>, tuple_object>::value", "!__is_same(remove_cvref_t<U>, tuple_object)"
    ),
    HeaderEdit(
        _TUPLE,
        "bool flag = true; static_for<0, sizeof...(T), 1>{}([&flag](auto i) { "
        "flag &= is_static_v<remove_cvref_t<__type_pack_element<i.value, T...>>>; }); return flag;",
        "return (is_static_v<remove_cvref_t<T>> && ... && true);",
    ),
    # A tuple of types without values needs no constructors of its elements.
    HeaderEdit(
        _TUPLE,
        "return tuple<remove_cvref_t<Xs>...>(std::forward<Xs>(xs)...);",
        "if constexpr((std::is_empty_v<remove_cvref_t<Xs>> && ... && true)) return tuple<remove_cvref_t<Xs>...>{}; "
        "else return tuple<remove_cvref_t<Xs>...>(static_cast<Xs&&>(xs)...);",
    ),
    HeaderEdit(_TUPLE, "std::forward<U>(u)", "static_cast<U&&>(u)"),
    HeaderEdit(_TUPLE, "std::forward<U>(e)", "static_cast<U&&>(e)"),
)


@functools.lru_cache(maxsize=16)
def edit_headers(ck_include: Path, _ck_digest: str) -> Mapping[str, str]:
    """The edited headers of a CK tree, and ours that they include, by name. Empty if an edit finds nothing.

    The digest of the tree is a part of the cache's key only.
    """
    if not all(count_edits(ck_include).values()):
        return {}
    edited = {name: _edit(name, (ck_include / name).read_text("utf-8")) for name in _list_headers()}
    return {**edited, LOOPS_NAME: LOOPS.read_text("utf-8")}


def count_edits(ck_include: Path) -> Mapping[HeaderEdit, int]:
    """The number of places in a CK tree that each edit changes."""
    counts = {}
    for name in _list_headers():
        path = ck_include / name
        text = path.read_text("utf-8") if path.is_file() else ""
        for edit in EDITS:
            if edit.header == name:
                text, counts[edit] = _replace(edit, text)
    return counts


def digest_edits() -> str:
    """Compute the digest of all edits, which is the same for every CK tree."""
    return digest_value({"edits": [(e.header, e.old, e.new) for e in EDITS], "loops": LOOPS.read_text("utf-8")})


def _list_headers() -> tuple[str, ...]:
    return tuple(dict.fromkeys(edit.header for edit in EDITS))


def _edit(name: str, text: str) -> str:
    edited = text
    for edit in EDITS:
        if edit.header == name:
            edited, _ = _replace(edit, edited)
    if "::tilewright_ck::" in edited:
        # In place of an empty line: lines keep their numbers, which messages show.
        edited = edited.replace("#pragma once\n\n", f'#pragma once\n#include "{LOOPS_NAME}"\n', 1)
    return edited


def _replace(edit: HeaderEdit, text: str) -> tuple[str, int]:
    """Replace all occurrences. The new text takes as many lines as the old one."""
    return _compile_pattern(edit.old).subn(lambda found: edit.new + "\n" * found[0].count("\n"), text)


@functools.cache
def _compile_pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s*".join(re.escape(token) for token in re.findall(r"\w+|\S", text)))
