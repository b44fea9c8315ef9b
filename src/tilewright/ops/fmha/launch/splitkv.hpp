// The launcher of the family splitkv: attention over parts of the keys, one work-group for each part.
#ifndef TILEWRIGHT_FMHA_SPLITKV_HPP
#define TILEWRIGHT_FMHA_SPLITKV_HPP

#include "tilewright_fmha_cache.hpp"

namespace tilewright_fmha {

template <typename D>
struct SplitKvTypes
{
    // LSE of the parts is what combine weighs them with: it is stored always, and so is fp32.
    using Traits = ck_tile::TileFmhaFwdSplitKVTraits<D::pad_q,
                                                     D::pad_k,
                                                     D::pad_hdim_q != 0,
                                                     D::pad_hdim_v != 0,
                                                     D::soft_cap,
                                                     D::bias,
                                                     false,
                                                     true,
                                                     D::static_quant,
                                                     D::paged,
                                                     D::uneven_splits,
                                                     D::merge_heads,
                                                     Parts<D>::occupancy>;
    using Problem = ck_tile::BlockFmhaFwdSplitKVPipelineProblem<typename D::QKV,
                                                                typename D::QKV,
                                                                typename D::QKV,
                                                                float,
                                                                float,
                                                                typename D::Bias,
                                                                float,
                                                                typename D::P,
                                                                float,
                                                                float,
                                                                AttentionShape<D>,
                                                                D::group_mode,
                                                                typename Parts<D>::Variant,
                                                                typename Parts<D>::Mask,
                                                                Traits>;
    using Pipe = std::conditional_t<D::pipeline == Pipeline::qr_nwarp_sshuffle,
                                    ck_tile::BlockFmhaFwdSplitKVPipelineNWarpSShuffleQRKSVS<Problem>,
                                    ck_tile::BlockFmhaFwdSplitKVPipelineQRKSVS<Problem>>;
    using Epilogue = ck_tile::Default2DEpilogue<
        ck_tile::Default2DEpilogueProblem<float, float, D::pad_q, D::pad_hdim_v != 0>>;
    using Kernel = ck_tile::FmhaFwdSplitKVKernel<Pipe, Epilogue>;
};

template <typename D>
struct SplitKv
{
    using K = typename SplitKvTypes<D>::Kernel;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check_struct,
                             check_mode<D>,
                             check_hdim_q<D>,
                             check_hdim_v<D, D::n1>,
                             check_rows,
                             check_splits,
                             check_mask<D>,
                             check_bias<D>,
                             check_soft_cap<D>,
                             check_dropout<D>,
                             check_static_quant<D>,
                             check_pages<D>,
                             check_cut<D>,
                             check_whole_tiles<D>,
                             check_min_seqlen_q<D>,
                             check_strides_q_k_v,
                             check_strides_acc);
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
                                         need_acc,
                                         need_starts<D>,
                                         need_bias<D>,
                                         need_page_table<D>,
                                         check_cache_index);
        if(status != TW_OK)
            return status;
        const auto& a   = *args;
        const auto grid = K::GridSize(a.batch, a.heads, a.kv_heads, a.seqlen_q, a.hdim_v, a.num_splits);
        return launch<K, K::kBlockPerCu>(grid, arguments(a), stream);
    }

    static void name_instances() { static_cast<void>(&ck_tile::kentry<K::kBlockPerCu, K, typename K::Kargs>); }

    private:
    // With merged heads a tile of queries has the rows of all heads that share keys.
    static int check_rows(const tw_fmha_args* args)
    {
        const int64_t rows = args->seqlen_q * (D::merge_heads ? args->heads / args->kv_heads : 1);
        if(!fits_int32(rows) || (!D::pad_q && !D::group_mode && rows % D::m0 != 0))
            return fail(TW_UNSUPPORTED,
                        "there are %lld rows of queries, without padding they must be a multiple of m0 = %lld",
                        rows,
                        D::m0);
        return TW_OK;
    }

    // Lengths of sequences are in the GPU's memory. A part that ends inside a tile needs uneven_splits, which cuts its
    // last tile; group mode cuts always.
    static int check_splits(const tw_fmha_args* args)
    {
        if(args->num_splits < 1 || !fits_int32(args->num_splits * args->seqlen_q))
            return fail(TW_UNSUPPORTED, "there are %lld parts of the keys, must be at least 1", args->num_splits);
        if(args->num_splits > 1 && !D::uneven_splits && !D::group_mode)
            return fail(TW_UNSUPPORTED,
                        "the keys are in %lld parts that may end inside a tile of %lld, this kernel does not cut tiles",
                        args->num_splits,
                        D::n0);
        return TW_OK;
    }

    static int check_strides_acc(const tw_fmha_args* args)
    {
        const int status = check_strides(args->o_acc, "a stride of o_acc is %lld, must be below 2^31");
        if(status != TW_OK)
            return status;
        return check_strides(args->lse_acc, "a stride of lse_acc is %lld, must be below 2^31");
    }

    static int need_acc(const tw_fmha_args* args)
    {
        const int status = need(args->o_acc.data, "o_acc must not be null");
        return status != TW_OK ? status : need(args->lse_acc.data, "lse_acc must not be null");
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
                                                 a.lse_acc.data,
                                                 a.o_acc.data,
                                                 a.batch,
                                                 a.seqlen_q,
                                                 a.seqlen_k,
                                                 a.seqlens_k,
                                                 a.hdim_q,
                                                 a.hdim_v,
                                                 a.heads,
                                                 a.heads / a.kv_heads,
                                                 a.num_splits,
                                                 a.page_table,
                                                 a.page_table_stride,
                                                 a.page_size,
                                                 a.cache_index,
                                                 a.scale,
                                                 a.scale_p,
                                                 a.logits_cap,
                                                 a.q.row,
                                                 a.k.row,
                                                 a.v.row,
                                                 bias_row_of<D>(a),
                                                 a.o_acc.row,
                                                 a.q.head,
                                                 a.k.head,
                                                 a.v.head,
                                                 a.bias.head,
                                                 a.lse_acc.head,
                                                 a.o_acc.head,
                                                 a.q.batch,
                                                 a.k.batch,
                                                 a.v.batch,
                                                 a.bias.batch,
                                                 a.lse_acc.batch,
                                                 a.o_acc.batch,
                                                 a.lse_acc.part,
                                                 a.o_acc.part),
                                 window_of(a));
    }

    // Pages hold keys from their first token on: none of CK Tile's gaps.
    static auto group_arguments(const tw_fmha_args& a)
    {
        return make_arguments<K>(std::make_tuple(a.q.data,
                                                 a.k.data,
                                                 a.v.data,
                                                 a.bias.data,
                                                 a.lse_acc.data,
                                                 a.o_acc.data,
                                                 a.batch,
                                                 a.seqstart_q,
                                                 a.seqstart_k,
                                                 a.seqlens_k,
                                                 a.hdim_q,
                                                 a.hdim_v,
                                                 a.heads,
                                                 a.heads / a.kv_heads,
                                                 a.num_splits,
                                                 a.page_table,
                                                 a.page_table_stride,
                                                 a.page_size,
                                                 false,
                                                 a.scale,
                                                 a.scale_p,
                                                 a.logits_cap,
                                                 a.q.row,
                                                 a.k.row,
                                                 a.v.row,
                                                 bias_row_of<D>(a),
                                                 a.o_acc.row,
                                                 a.q.head,
                                                 a.k.head,
                                                 a.v.head,
                                                 a.bias.head,
                                                 a.lse_acc.head,
                                                 a.o_acc.head,
                                                 a.k.batch,
                                                 a.v.batch,
                                                 a.lse_acc.part,
                                                 a.o_acc.part),
                                 window_of(a));
    }
};

} // namespace tilewright_fmha

#endif
