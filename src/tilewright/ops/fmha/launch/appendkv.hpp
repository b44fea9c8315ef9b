// The launcher of the family appendkv: writes new keys and values to a cache; rotates them, and the queries.
#ifndef TILEWRIGHT_FMHA_APPENDKV_HPP
#define TILEWRIGHT_FMHA_APPENDKV_HPP

#include "tilewright_fmha_cache.hpp"

namespace tilewright_fmha {

template <typename D>
struct AppendKvTypes
{
    using Traits = ck_tile::
        TileFmhaFwdAppendKVTraits<D::pad_q, D::pad_k, D::pad_hdim_q != 0, D::pad_hdim_v != 0, Parts<D>::occupancy>;
    using Problem = ck_tile::BlockFmhaFwdAppendKVPipelineProblem<typename D::QKV,
                                                                 typename D::QKV,
                                                                 typename D::QKV,
                                                                 D::m0,
                                                                 D::n0,
                                                                 D::hdim_q,
                                                                 D::hdim_v,
                                                                 D::v_row_major,
                                                                 D::rotary,
                                                                 D::paged,
                                                                 Traits>;
    using Kernel = ck_tile::FmhaFwdAppendKVKernel<ck_tile::BlockFmhaFwdAppendKVPipeline<Problem>>;
};

template <typename D>
struct AppendKv
{
    static_assert(!D::group_mode, "CK Tile's kernel has no group mode");
    using K = typename AppendKvTypes<D>::Kernel;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check_struct,
                             check_mode<D>,
                             check_hdim_q<D>,
                             check_hdim_v<D, D::hdim_v>,
                             check_rows,
                             check_rotary,
                             check_pages<D>,
                             check_two_pages,
                             check_strides_q_k_v,
                             check_strides_new);
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

    static int run(const tw_fmha_args* args, hipStream_t stream)
    {
        const int status =
            first_refusal(args, supports, need_q_k_v, need_new, need_rotary, need_page_table<D>, check_cache_index);
        if(status != TW_OK)
            return status;
        const auto& a = *args;
        return launch<K, K::kBlockPerCu>(
            K::GridSize(a.batch, a.heads, a.seqlen_q, a.seqlen_new), arguments(a), stream);
    }

    static void name_instances() { static_cast<void>(&ck_tile::kentry<K::kBlockPerCu, K, typename K::Kargs>); }

    private:
    // A tile of queries or new keys is 16 bytes of each of this many threads.
    static constexpr int elements = 16 / sizeof(typename D::QKV);

    static int check_rows(const tw_fmha_args* args)
    {
        if(args->seqlen_new < 1 || !fits_int32(args->seqlen_new))
            return fail(TW_UNSUPPORTED, "%lld keys are new, must be at least 1 and below 2^31", args->seqlen_new);
        if(!D::pad_k && !D::v_row_major)
            return fail(TW_UNSUPPORTED,
                        "rows of transposed values end anywhere, this kernel has tiles of %lld keys",
                        D::n0);
        if(!D::pad_k && args->seqlen_new % D::n0 != 0)
            return fail(TW_UNSUPPORTED,
                        "%lld keys are new, without padding they must be a multiple of n0 = %lld",
                        args->seqlen_new,
                        D::n0);
        return D::rotary == ck_tile::RotaryEmbeddingEnum::NONE ? TW_OK : check_seqlen_q<D>(args);
    }

    // A thread rotates all its elements or none, and half rotation takes them from one side of the middle.
    static int check_rotary(const tw_fmha_args* args)
    {
        constexpr int kind = static_cast<int>(D::rotary);
        if(args->rotary != kind)
            return fail(TW_UNSUPPORTED, "the problem has rotation %lld, this kernel has %lld", args->rotary, kind);
        if constexpr(kind == TW_FMHA_NO_ROTARY)
            return TW_OK;
        constexpr int step = kind == TW_FMHA_HALF ? 2 * elements : elements;
        if(args->rotary_dim < step || args->rotary_dim > args->hdim_q || args->rotary_dim % step != 0)
            return fail(TW_UNSUPPORTED,
                        "rotary_dim is %lld, must be a multiple of %lld and at most hdim_q = %lld",
                        args->rotary_dim,
                        step,
                        args->hdim_q);
        return TW_OK;
    }

    // A tile of new keys is written to the page where it begins and to the next one.
    static int check_two_pages(const tw_fmha_args* args)
    {
        if(D::paged && args->page_size < D::n0)
            return fail(TW_UNSUPPORTED,
                        "a page has %lld tokens, must have at least n0 = %lld: a tile is written to two pages at most",
                        args->page_size,
                        D::n0);
        return TW_OK;
    }

    static int check_strides_new(const tw_fmha_args* args)
    {
        const int status = check_strides(args->k_new, "a stride of k_new is %lld, must be below 2^31");
        return status != TW_OK ? status : check_strides(args->v_new, "a stride of v_new is %lld, must be below 2^31");
    }

    static int need_new(const tw_fmha_args* args)
    {
        int status = need(args->k_new.data, "k_new must not be null");
        if(status == TW_OK)
            status = need(args->v_new.data, "v_new must not be null");
        return status != TW_OK ? status : need(args->seqlens_k, "seqlens_k must not be null: it says where to append");
    }

    static int need_rotary(const tw_fmha_args* args)
    {
        if(D::rotary == ck_tile::RotaryEmbeddingEnum::NONE)
            return TW_OK;
        const int status = need(args->rotary_cos, "rotary_cos must not be null");
        return status != TW_OK ? status : need(args->rotary_sin, "rotary_sin must not be null");
    }

    static int check_cache_index(const tw_fmha_args* args)
    {
        if(args->cache_index != nullptr && D::paged)
            return fail(TW_UNSUPPORTED, "cache_index is read without pages only");
        return TW_OK;
    }

    // With a mask each query has a position of its own, behind those of the cache; without, all have that of the first.
    static auto arguments(const tw_fmha_args& a)
    {
        return K::MakeKargs(a.q.data,
                            a.k.data,
                            a.k_new.data,
                            a.v.data,
                            a.v_new.data,
                            a.seqlen_q,
                            a.seqlens_k,
                            a.seqlen_new,
                            a.hdim_q,
                            a.hdim_v,
                            a.heads,
                            a.heads / a.kv_heads,
                            a.rotary_cos,
                            a.rotary_sin,
                            a.rotary_dim,
                            a.mask != TW_FMHA_NO_MASK,
                            a.page_table,
                            a.page_table_stride,
                            a.page_size,
                            a.cache_index,
                            a.q.row,
                            a.k.row,
                            a.k_new.row,
                            a.v.row,
                            a.v_new.row,
                            a.q.head,
                            a.k.head,
                            a.k_new.head,
                            a.v.head,
                            a.v_new.head,
                            a.q.batch,
                            a.k.batch,
                            a.k_new.batch,
                            a.v.batch,
                            a.v_new.batch);
    }
};

} // namespace tilewright_fmha

#endif
