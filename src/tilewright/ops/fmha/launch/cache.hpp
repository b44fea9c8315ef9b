// What the launchers of splitkv, pagedkv, appendkv and batch_prefill share: tests of lengths and pages of a cache.
#ifndef TILEWRIGHT_FMHA_CACHE_HPP
#define TILEWRIGHT_FMHA_CACHE_HPP

#include "tilewright_fmha_kernel.hpp"

namespace tilewright_fmha {

// CK Tile's shape of the families whose block has six numbers.
template <typename D>
using AttentionShape =
    ck_tile::TileFmhaShape<ck_tile::sequence<D::m0, D::n0, D::k0, D::n1, D::k1, D::hdim_q>,
                           typename D::Waves0,
                           typename D::Mma0,
                           typename D::Waves1,
                           typename D::Mma1,
                           D::v_row_major>;

// How many keys a sequence of a cache has is known on the GPU only: the kernel must cut a last tile. Rows of keys, as
// those of an elementwise bias and of transposed values, would be read in vectors across their end.
template <typename D>
int check_cut(const tw_fmha_args*)
{
    constexpr bool key_rows = D::bias == ck_tile::BlockAttentionBiasEnum::ELEMENTWISE_BIAS || !D::v_row_major;
    if(D::pad_k || (!key_rows && (D::mask_form != MaskForm::none || D::uneven_splits)))
        return TW_OK;
    return fail(TW_UNSUPPORTED, "sequences of a cache end anywhere, this kernel has tiles of %lld keys", D::n0);
}

// A tile of keys lies in one page: PageBlockNavigator looks a page up once for each tile.
template <typename D>
int check_whole_tiles(const tw_fmha_args* args)
{
    if(!D::paged)
        return TW_OK;
    if(args->page_size % D::n0 != 0)
        return fail(TW_UNSUPPORTED,
                    "a page has %lld tokens, must be a multiple of n0 = %lld",
                    args->page_size,
                    D::n0);
    if(!fits_int32(args->page_size) || !fits_int32(args->page_table_stride))
        return fail(TW_UNSUPPORTED,
                    "a page has %lld tokens, a row of the page table %lld pages; both must be below 2^31",
                    args->page_size,
                    args->page_table_stride);
    return TW_OK;
}

template <typename D>
int need_page_table(const tw_fmha_args* args)
{
    if constexpr(D::paged)
        return need(args->page_table, "page_table must not be null with pages");
    return TW_OK;
}

// ALiBi's slopes have a stride of the batch where an elementwise bias has one of the rows.
template <typename D>
int64_t bias_row_of(const tw_fmha_args& a)
{
    return D::bias == ck_tile::BlockAttentionBiasEnum::ALIBI ? a.bias.batch : a.bias.row;
}

} // namespace tilewright_fmha

#endif
