// The masks of attention kernels: CK Tile's own, and one that keeps the first keys visible.
#ifndef TILEWRIGHT_FMHA_MASK_HPP
#define TILEWRIGHT_FMHA_MASK_HPP

#include "tilewright_ck_api.hpp"

namespace tilewright_fmha {

enum class MaskForm
{
    none,
    any,
    causal,
    window
};

// A window that never masks the first Sink keys: a query sees them as long as they are not behind the window's right
// end. CK Tile's pipelines go over one range of tiles, so the range begins at the first one; what lies between the
// sinks and the window is masked element by element, since Base::IsEdgeTile holds for all tiles left of the window.
template <typename Base, int Sink>
struct SinkMask : Base
{
    CK_TILE_HOST_DEVICE SinkMask(ck_tile::index_t y_total_, ck_tile::index_t x_total_)
        : Base(y_total_, x_total_), right(0), rows(y_total_), keys(x_total_)
    {
    }

#if defined(TILEWRIGHT_CK_FMHA_MASK_SINKS)
    // CK Tile's own number of sinks is 0 here: its pipelines are compiled without them.
    CK_TILE_HOST_DEVICE SinkMask(ck_tile::index_t y_,
                                 ck_tile::index_t x_,
                                 ck_tile::index_t sinks,
                                 ck_tile::index_t y_total_,
                                 ck_tile::index_t x_total_)
        : Base(y_, x_, sinks, y_total_, x_total_), right(x_), rows(y_total_), keys(x_total_)
    {
    }
#else
    CK_TILE_HOST_DEVICE
    SinkMask(ck_tile::index_t y_, ck_tile::index_t x_, ck_tile::index_t y_total_, ck_tile::index_t x_total_)
        : Base(y_, x_, y_total_, x_total_), right(x_), rows(y_total_), keys(x_total_)
    {
    }
#endif

    template <ck_tile::index_t YTile, ck_tile::index_t XTile>
    CK_TILE_HOST_DEVICE constexpr auto
    GetTileRangeAlongX(ck_tile::index_t i_y, ck_tile::number<YTile> height, ck_tile::number<XTile> width) const
    {
        const auto range = Base::GetTileRangeAlongX(i_y, height, width);
        return ck_tile::make_tuple(ck_tile::index_t{0}, ck_tile::index_t{range.at(ck_tile::number<1>{})});
    }

    // The range within one of several equal parts of the keys, parted as Base parts them.
    template <ck_tile::index_t YTile, ck_tile::index_t XTile>
    CK_TILE_HOST_DEVICE constexpr auto GetTileRangeAlongX(ck_tile::index_t i_y,
                                                          ck_tile::number<YTile> height,
                                                          ck_tile::number<XTile> width,
                                                          ck_tile::index_t num_splits,
                                                          ck_tile::index_t i_split) const
    {
        const auto range              = Base::GetTileRangeAlongX(i_y, height, width, num_splits, i_split);
        const ck_tile::index_t length = ck_tile::max(1, ck_tile::integer_divide_ceil(keys, num_splits));
        return ck_tile::make_tuple(ck_tile::index_t{length * i_split},
                                   ck_tile::index_t{range.at(ck_tile::number<1>{})});
    }

    // Tiles with sinks are seen by all rows below the window's right end.
    template <ck_tile::index_t YTile, ck_tile::index_t XTile>
    CK_TILE_HOST_DEVICE constexpr auto
    GetTileRangeAlongY(ck_tile::index_t i_x, ck_tile::number<YTile> height, ck_tile::number<XTile> width) const
    {
        const auto range           = Base::GetTileRangeAlongY(i_x, height, width);
        const ck_tile::index_t end = (rows + YTile - 1) / YTile * YTile;
        return ck_tile::make_tuple(ck_tile::index_t{range.at(ck_tile::number<0>{})},
                                   i_x < Sink ? end : ck_tile::index_t{range.at(ck_tile::number<1>{})});
    }

    CK_TILE_HOST_DEVICE constexpr auto IsOutOfBound(ck_tile::index_t i_y, ck_tile::index_t i_x) const
    {
        if(i_x < Sink)
            return i_x >= ck_tile::min(i_y + right, keys) || i_y >= rows;
        return static_cast<bool>(Base::IsOutOfBound(i_y, i_x));
    }

    private:
    ck_tile::index_t right, rows, keys;
};

template <MaskForm Form>
struct MaskOf
{
    using type = ck_tile::SimplifiedGenericAttentionMask<Form != MaskForm::none>;
};
template <>
struct MaskOf<MaskForm::causal>
{
    using type = ck_tile::GenericAttentionMask<true, false>;
};
template <>
struct MaskOf<MaskForm::window>
{
    using type = ck_tile::GenericAttentionMask<true, true>;
};

} // namespace tilewright_fmha

#endif
