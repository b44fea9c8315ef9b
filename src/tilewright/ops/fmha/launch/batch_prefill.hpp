// The launcher of the family batch_prefill: attention over pages, listed for each sequence.
#ifndef TILEWRIGHT_FMHA_BATCH_PREFILL_HPP
#define TILEWRIGHT_FMHA_BATCH_PREFILL_HPP

#include "tilewright_fmha_cache.hpp"

namespace tilewright_fmha {

// CK Tile's pipeline looks pages up from the first one of a sequence, whatever tile of keys a mask lets it begin with.
// So it has to begin with the first one: that is what SinkMask does, also without sinks.
template <typename D>
struct BatchPrefillMask
{
    using Window = typename Parts<D>::Window;
    using type   = std::conditional_t<D::mask_form == MaskForm::none, Window, SinkMask<Window, D::sink>>;
};

template <typename D>
struct BatchPrefillTypes
{
#if defined(TILEWRIGHT_CK_FMHA_BATCH_PREFILL_PAGE_SIZES)
    static_assert(D::group_mode && D::v_row_major, "this CK Tile has group mode and values in rows only");
    using Layouts = ck_tile::BlockAttentionKVCacheMemoryLayoutEnum;
    using Lookups = ck_tile::BlockAttentionKVCacheLookupTableEnum;
    using Traits  = ck_tile::TileFmhaBatchPrefillTraits<D::pad_q,
                                                        D::pad_k,
                                                        D::pad_hdim_q != 0,
                                                        D::pad_hdim_v != 0,
                                                        D::soft_cap,
                                                        D::bias,
                                                        false,
                                                        D::lse,
                                                        D::dropout,
                                                        Quantisation<D>::value,
                                                        Parts<D>::occupancy,
                                                        false,
                                                        false,
                                                        D::page_size,
                                                        D::vectorised ? Layouts::VECTORIZED_LAYOUT
                                                                      : Layouts::LINEAR_LAYOUT,
                                                        D::by_table ? Lookups::VLLM_BLOCK_TABLE_2D
                                                                    : Lookups::SGLANG_PAGE_TABLE_1D>;
    using Problem = ck_tile::BlockFmhaBatchPrefillPipelineProblem<typename D::QKV,
                                                                  typename D::QKV,
                                                                  typename D::QKV,
                                                                  float,
                                                                  float,
                                                                  typename D::Bias,
                                                                  uint8_t,
                                                                  float,
                                                                  typename D::P,
                                                                  float,
                                                                  typename D::O,
                                                                  AttentionShape<D>,
                                                                  D::group_mode,
                                                                  typename Parts<D>::Variant,
                                                                  typename BatchPrefillMask<D>::type,
                                                                  false,
                                                                  D::page_size,
                                                                  Traits>;
#else
    static_assert(D::page_size == 1 && !D::vectorised && !D::by_table, "this CK Tile has lists of single tokens only");
    using Traits  = ck_tile::TileFmhaTraits<D::pad_q,
                                            D::pad_k,
                                            D::pad_hdim_q != 0,
                                            D::pad_hdim_v != 0,
                                            D::soft_cap,
                                            D::bias,
                                            false,
                                            D::lse,
                                            D::dropout,
                                            Quantisation<D>::value,
                                            Parts<D>::occupancy>;
    using Problem = ck_tile::BlockFmhaPipelineProblem<typename D::QKV,
                                                      typename D::QKV,
                                                      typename D::QKV,
                                                      float,
                                                      float,
                                                      typename D::Bias,
                                                      uint8_t,
                                                      float,
                                                      typename D::P,
                                                      float,
                                                      typename D::O,
                                                      AttentionShape<D>,
                                                      D::group_mode,
                                                      typename Parts<D>::Variant,
                                                      typename BatchPrefillMask<D>::type,
                                                      false,
                                                      Traits>;
#endif
    using Pipe     = ck_tile::BlockFmhaBatchPrefillPipelineQRKSVSAsync<Problem>;
    using Epilogue = ck_tile::Default2DEpilogue<
        ck_tile::Default2DEpilogueProblem<float, typename D::O, D::pad_q, D::pad_hdim_v != 0>>;
    using Kernel = ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<Pipe, Epilogue>;
};

// The pages of all sequences, and behind them page 0 as often as the kernel reads beyond the last one.
template <int Beyond, int Threads>
__launch_bounds__(Threads) __global__
    void copy_page_list(int32_t* copy, const int32_t* page_list, const int32_t* page_starts, int batch)
{
    const int listed = page_starts[batch];
    const int step   = gridDim.x * blockDim.x;
    for(int at = blockIdx.x * blockDim.x + threadIdx.x; at < listed + Beyond; at += step)
        copy[at] = at < listed ? page_list[at] : 0;
}

template <typename D>
struct BatchPrefill
{
    using K = typename BatchPrefillTypes<D>::Kernel;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    // Vectors of 16 bytes are copied past registers: all or nothing of one must be inside a head.
    static int check_vectors(const tw_fmha_args* args)
    {
        constexpr int64_t vector = 16 / sizeof(typename D::QKV);
        if(args->hdim_q % vector != 0 || args->hdim_v % vector != 0)
            return fail(TW_UNSUPPORTED,
                        "heads of %lld and %lld elements are not multiples of %lld",
                        args->hdim_q,
                        args->hdim_v,
                        vector);
        return TW_OK;
    }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check_struct,
                             check_mode<D>,
                             check_hdim_q<D>,
                             check_hdim_v<D, D::n1>,
                             check_mask<D>,
                             check_bias<D>,
                             check_lse<D>,
                             check_soft_cap<D>,
                             check_dropout<D>,
                             check_static_quant<D>,
                             check_vectors,
                             check_tokens,
                             check_min_seqlen_q<D>,
                             check_strides_q_k_v,
                             check_sinks,
                             check_rest);
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes           = 0;
        const int status = supports(args);
        if(status == TW_OK)
            *bytes = needed_bytes(*args);
        return status;
    }

    static int run(const tw_fmha_args* args, hipStream_t stream)
    {
        const int status =
            first_refusal(args, supports, need_q_k_v, need_o, need_lists, need_bias<D>, need_lse<D>, need_randval);
        if(status != TW_OK)
            return status;
        const auto& a = *args;
        if constexpr(copies_list)
        {
            if(a.workspace == nullptr || a.workspace_size < needed_bytes(a))
                return fail(TW_WORKSPACE,
                            "the workspace has %lld bytes, this problem needs %lld",
                            a.workspace_size,
                            needed_bytes(a));
            const int groups = (a.batch * a.seqlen_k + beyond + threads - 1) / threads;
            copy_page_list<beyond, threads><<<groups, threads, 0, stream>>>(
                static_cast<int32_t*>(a.workspace), a.page_list, a.page_starts, static_cast<int>(a.batch));
        }
        const auto grid = K::GridSize(a.batch, a.heads, a.seqlen_q, a.hdim_v);
        return launch<K, K::kBlockPerCu>(grid, arguments(a), stream);
    }

    static void name_instances()
    {
        if constexpr(copies_list)
            static_cast<void>(&copy_page_list<beyond, threads>);
        static_cast<void>(&ck_tile::kentry<K::kBlockPerCu, K, typename K::Kargs>);
    }

    private:
    static constexpr int threads = 256;
#if defined(TILEWRIGHT_CK_FMHA_BATCH_PREFILL_PAGE_SIZES)
    // The kernel reads no numbers of pages behind those of a sequence.
    static constexpr bool copies_list = false;
    static constexpr int beyond       = 0;
    static constexpr bool takes_sinks = true;
#else
    // The kernel reads numbers of pages for whole tiles of n0 keys and, ahead, for k1 more.
    static constexpr bool copies_list = true;
    static constexpr int beyond       = D::n0 + D::k1;
    static constexpr bool takes_sinks = false;
#endif

    static uint64_t needed_bytes(const tw_fmha_args& a)
    {
        return copies_list ? (static_cast<uint64_t>(a.batch) * a.seqlen_k + beyond) * sizeof(int32_t) : 0;
    }

    static int check_tokens(const tw_fmha_args* args)
    {
        if(args->page_size != D::page_size)
            return fail(TW_UNSUPPORTED,
                        "a page has %lld tokens, this kernel is for pages of %lld",
                        args->page_size,
                        D::page_size);
        if((args->kv_layout != 0) != D::vectorised || (args->page_lookup != 0) != D::by_table)
            return fail(TW_UNSUPPORTED,
                        "pages have kv_layout %lld and page_lookup %lld, which this kernel is not for",
                        args->kv_layout,
                        args->page_lookup);
        // Where a tile of keys has several pages, an address is a 32-bit offset from the first one.
        constexpr int64_t most  = INT32_MAX / sizeof(typename D::QKV);
        const int64_t elements = args->pages * std::max(args->k.batch, args->v.batch);
        if(D::page_size < D::n0 && elements > most)
            return fail(TW_UNSUPPORTED, "the cache has %lld elements, must have at most %lld", elements, most);
        // Elements behind a head are loaded up to a page's length after the start of the head, so that no element of
        // the last head may be behind its end.
        if(D::page_size >= D::n0 && args->kv_heads > 1 && (args->hdim_q != D::hdim_q || args->hdim_v != D::n1))
            return fail(TW_UNSUPPORTED,
                        "heads of %lld and %lld elements in pages of %lld tokens must be as large as the tiles",
                        args->hdim_q,
                        args->hdim_v,
                        D::page_size);
        if(args->pages < 1 || !fits_int32(args->pages) || !fits_int32(args->batch * args->seqlen_k + beyond) ||
           (D::by_table && !fits_int32(args->page_table_stride)))
            return fail(TW_UNSUPPORTED,
                        "there are %lld pages, and up to %lld keys; both must be below 2^31",
                        args->pages,
                        args->batch * args->seqlen_k);
        return TW_OK;
    }

    // The kernel compares sinks with scores in other units if these are capped (S620), and scores of ALiBi with a causal
    // mask have a constant in each row that only keys have in common (S621).
    static int check_sinks(const tw_fmha_args* args)
    {
        if(!args->has_sinks)
            return TW_OK;
        if(!takes_sinks || D::soft_cap)
            return fail(TW_UNSUPPORTED, "there are sinks, which this kernel does not have");
        if(D::bias == ck_tile::BlockAttentionBiasEnum::ALIBI && args->mask != 0 && args->window_left < 0 &&
           args->window_right == 0)
            return fail(TW_UNSUPPORTED, "there are sinks, which this kernel does not have with ALiBi and a causal mask");
        return TW_OK;
    }

    static int check_rest(const tw_fmha_args* args)
    {
        if(args->num_splits != 0)
            return fail(TW_UNSUPPORTED,
                        "the keys are in %lld parts, this kernel computes them as one",
                        args->num_splits);
        return check_strides(args->o, "a stride of o is %lld, must be below 2^31");
    }

    static int need_lists(const tw_fmha_args* args)
    {
        int status = D::by_table ? need(args->page_table, "page_table must not be null")
                                 : need(args->page_starts, "page_starts must not be null");
        if(status == TW_OK)
            status = D::by_table ? need(args->seqlens_k, "seqlens_k must not be null with a page table")
                                 : need(args->page_list, "page_list must not be null");
        if(status == TW_OK && !D::by_table && D::page_size > 1)
            status = need(args->last_page_lens, "last_page_lens must not be null with pages of several tokens");
        if(status == TW_OK && args->has_sinks)
            status = need(args->sink_logits, "sink_logits must not be null with sinks");
        if(status == TW_OK && D::group_mode)
            status = need(args->seqstart_q, "seqstart_q must not be null in group mode");
        return status;
    }

    static auto arguments(const tw_fmha_args& a)
    {
        if constexpr(!D::dropout)
            return seeded_arguments(a, std::make_pair(uint64_t{0}, uint64_t{0}));
        else if(a.drop_seed_at != nullptr)
            return seeded_arguments(a, std::make_pair<const void*, const void*>(a.drop_seed_at, a.drop_offset_at));
        else
            return seeded_arguments(a, std::make_pair(a.drop_seed, a.drop_offset));
    }

    // What newer lists of arguments have besides: scales of q, k and v, of which there are none, the size of pages, and
    // a logit of each head's sink.
#if defined(TILEWRIGHT_CK_FMHA_BATCH_PREFILL_PAGE_SIZES)
    static constexpr auto no_descales = std::make_tuple(nullptr, nullptr, nullptr);

    static auto pages(const tw_fmha_args& a)
    {
        const auto table = [&] {
            if constexpr(D::by_table)
                return typename K::PageBlockTableKargs{
                    a.page_table, static_cast<ck_tile::index_t>(a.page_table_stride), a.seqlens_k};
            else
                return typename K::PageBlockTableKargs{a.page_starts, a.page_list, a.last_page_lens};
        }();
        return std::make_tuple(a.pages, a.page_size, table);
    }

    static auto rows_of(const tw_fmha_args& a) { return std::make_tuple(a.q.row, a.k.row, a.v.row); }

    static auto sinks(const tw_fmha_args& a) { return std::make_tuple(a.has_sinks ? a.sink_logits : nullptr); }
#else
    static constexpr std::tuple<> no_descales;

    static auto pages(const tw_fmha_args& a) { return std::make_tuple(a.pages, a.page_starts, a.workspace); }

    // A page has one token, so a page's stride is that of a row.
    static auto rows_of(const tw_fmha_args& a) { return std::make_tuple(a.q.row, a.k.batch, a.v.batch); }

    static auto sinks(const tw_fmha_args&) { return std::tuple<>{}; }
#endif

    template <typename SeedOffset>
    static auto seeded_arguments(const tw_fmha_args& a, const SeedOffset& seed_offset)
    {
        const auto inputs  = std::make_tuple(a.q.data, a.k.data, a.v.data, a.bias.data);
        const auto outputs = std::make_tuple(a.randval.data, a.lse.data, a.o.data);
        const auto sizes   = std::make_tuple(a.hdim_q, a.hdim_v, a.heads, a.heads / a.kv_heads);
        const auto scales  = std::make_tuple(a.scale, a.scale_p, a.scale_o, a.logits_cap);
        const auto strides = std::make_tuple(bias_row_of<D>(a),
                                             a.randval.row,
                                             a.o.row,
                                             a.q.head,
                                             a.k.head,
                                             a.v.head,
                                             a.bias.head,
                                             a.randval.head,
                                             a.lse.head,
                                             a.o.head);
        const auto dropout = std::make_tuple(static_cast<float>(a.p_drop), a.wants_randval != 0, seed_offset);
        const auto batches = [&] {
            if constexpr(D::group_mode)
                return std::make_tuple(a.k.batch, a.v.batch);
            else
                return std::make_tuple(
                    a.q.batch, a.k.batch, a.v.batch, a.bias.batch, a.randval.batch, a.lse.batch, a.o.batch);
        }();
        const auto lengths = [&] {
            if constexpr(D::group_mode)
                return std::make_tuple(a.seqstart_q);
            else
                return std::make_tuple(a.seqlen_q);
        }();
        return make_arguments<K>(inputs,
                                 no_descales,
                                 outputs,
                                 lengths,
                                 sizes,
                                 pages(a),
                                 scales,
                                 rows_of(a),
                                 strides,
                                 batches,
                                 window_of(a),
                                 dropout,
                                 sinks(a));
    }
};

} // namespace tilewright_fmha

#endif
