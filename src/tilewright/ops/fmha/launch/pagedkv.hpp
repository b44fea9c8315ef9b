// The launcher of the family pagedkv: attention over a cache, whose pages a table names.
#ifndef TILEWRIGHT_FMHA_PAGEDKV_HPP
#define TILEWRIGHT_FMHA_PAGEDKV_HPP

#include "tilewright_fmha_cache.hpp"

namespace tilewright_fmha {

template <typename D>
struct PagedKvTypes
{
    using Traits = ck_tile::TileFmhaFwdPagedKVTraits<D::pad_q,
                                                     D::pad_k,
                                                     D::pad_hdim_q != 0,
                                                     D::pad_hdim_v != 0,
                                                     D::soft_cap,
                                                     D::bias,
                                                     false,
                                                     D::lse,
                                                     D::paged,
                                                     D::static_quant,
                                                     Parts<D>::occupancy,
                                                     D::skip_min_seqlen_q>;
    using Problem = ck_tile::BlockFmhaFwdPagedKVPipelineProblem<typename D::QKV,
                                                                typename D::QKV,
                                                                typename D::QKV,
                                                                float,
                                                                float,
                                                                typename D::Bias,
                                                                float,
                                                                typename D::P,
                                                                float,
                                                                typename D::O,
                                                                AttentionShape<D>,
                                                                D::group_mode,
                                                                typename Parts<D>::Variant,
                                                                typename Parts<D>::Mask,
                                                                Traits>;
    using Pipe     = ck_tile::BlockFmhaFwdPagedKVPipelineQRKSVS<Problem>;
    using Epilogue = ck_tile::Default2DEpilogue<
        ck_tile::Default2DEpilogueProblem<float, typename D::O, D::pad_q, D::pad_hdim_v != 0>>;
    using Kernel = ck_tile::FmhaFwdPagedKVKernel<Pipe, Epilogue>;
};

template <typename D>
struct PagedKv
{
    using K = typename PagedKvTypes<D>::Kernel;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check_struct,
                             check_mode<D>,
                             check_hdim_q<D>,
                             check_hdim_v<D, D::n1>,
                             check_seqlen_q<D>,
                             check_mask<D>,
                             check_bias<D>,
                             check_lse<D>,
                             check_soft_cap<D>,
                             check_dropout<D>,
                             check_static_quant<D>,
                             check_pages<D>,
                             check_cut<D>,
                             check_whole_tiles<D>,
                             check_min_seqlen_q<D>,
                             check_strides_q_k_v,
                             check_rest);
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

    static int run(const tw_fmha_args* args, hipStream_t stream)
    {
        const int status = first_refusal(args,
                                         supports,
                                         need_q_k_v,
                                         need_o,
                                         need_starts<D>,
                                         need_bias<D>,
                                         need_lse<D>,
                                         need_page_table<D>,
                                         check_cache_index);
        if(status != TW_OK)
            return status;
        const auto& a = *args;
        // The kernel orders its work-groups by whether group mode gives lengths of the keys.
        const auto grid = K::GridSize(a.batch, a.heads, a.seqlen_q, a.hdim_v, D::group_mode && a.seqlens_k != nullptr);
        return launch<K, K::kBlockPerCu>(grid, arguments(a), stream);
    }

    static void name_instances() { static_cast<void>(&ck_tile::kentry<K::kBlockPerCu, K, typename K::Kargs>); }

    private:
    static int check_rest(const tw_fmha_args* args)
    {
        if(args->num_splits != 0)
            return fail(TW_UNSUPPORTED,
                        "the keys are in %lld parts, this kernel computes them as one",
                        args->num_splits);
        return check_strides(args->o, "a stride of o is %lld, must be below 2^31");
    }

    static int check_cache_index(const tw_fmha_args* args)
    {
        if(args->cache_index != nullptr && (D::paged || D::group_mode))
            return fail(TW_UNSUPPORTED, "cache_index is read in batch mode without pages only");
        return TW_OK;
    }

    static auto arguments(const tw_fmha_args& a)
    {
        if constexpr(D::group_mode)
            return group_arguments(a);
        else
            return batch_arguments(a);
    }

    static auto batch_arguments(const tw_fmha_args& a)
    {
        return make_arguments<K>(std::make_tuple(a.q.data,
                                                 a.k.data,
                                                 a.v.data,
                                                 a.bias.data,
                                                 a.lse.data,
                                                 a.o.data,
                                                 a.seqlen_q,
                                                 a.seqlen_k,
                                                 a.seqlens_k,
                                                 a.hdim_q,
                                                 a.hdim_v,
                                                 a.heads,
                                                 a.heads / a.kv_heads,
                                                 a.page_table,
                                                 a.page_table_stride,
                                                 a.page_size,
                                                 a.cache_index,
                                                 a.scale,
                                                 a.scale_p,
                                                 a.scale_o,
                                                 a.logits_cap,
                                                 a.q.row,
                                                 a.k.row,
                                                 a.v.row,
                                                 bias_row_of<D>(a),
                                                 a.o.row,
                                                 a.q.head,
                                                 a.k.head,
                                                 a.v.head,
                                                 a.bias.head,
                                                 a.lse.head,
                                                 a.o.head,
                                                 a.q.batch,
                                                 a.k.batch,
                                                 a.v.batch,
                                                 a.bias.batch,
                                                 a.lse.batch,
                                                 a.o.batch),
                                 window_of(a));
    }

    // Pages hold keys from their first token on: none of CK Tile's gaps.
    static auto group_arguments(const tw_fmha_args& a)
    {
        return make_arguments<K>(std::make_tuple(a.q.data,
                                                 a.k.data,
                                                 a.v.data,
                                                 a.bias.data,
                                                 a.lse.data,
                                                 a.o.data,
                                                 a.seqstart_q,
                                                 a.seqstart_k,
                                                 a.seqlens_k,
                                                 a.hdim_q,
                                                 a.hdim_v,
                                                 a.heads,
                                                 a.heads / a.kv_heads,
                                                 a.page_table,
                                                 a.page_table_stride,
                                                 a.page_size,
                                                 false,
                                                 a.scale,
                                                 a.scale_p,
                                                 a.scale_o,
                                                 a.logits_cap,
                                                 a.q.row,
                                                 a.k.row,
                                                 a.v.row,
                                                 bias_row_of<D>(a),
                                                 a.o.row,
                                                 a.q.head,
                                                 a.k.head,
                                                 a.v.head,
                                                 a.bias.head,
                                                 a.lse.head,
                                                 a.o.head,
                                                 a.k.batch,
                                                 a.v.batch),
                                 window_of(a),
                                 std::make_tuple(a.min_seqlen_q));
    }
};

} // namespace tilewright_fmha

#endif
