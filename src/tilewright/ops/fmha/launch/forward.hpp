// The launcher of the family forward: attention in one kernel.
#ifndef TILEWRIGHT_FMHA_FORWARD_HPP
#define TILEWRIGHT_FMHA_FORWARD_HPP

#include "tilewright_fmha_kernel.hpp"

namespace tilewright_fmha {

template <Pipeline Which, typename Problem>
struct ForwardPipe;
template <typename Problem>
struct ForwardPipe<Pipeline::qr, Problem>
{
    using type = ck_tile::BlockFmhaPipelineQRKSVS<Problem>;
};
template <typename Problem>
struct ForwardPipe<Pipeline::qr_async, Problem>
{
    using type = ck_tile::BlockFmhaPipelineQRKSVSAsync<Problem>;
};
template <typename Problem>
struct ForwardPipe<Pipeline::qr_async_trload, Problem>
{
    using type = ck_tile::BlockFmhaPipelineQRKSVSAsyncTrload<Problem>;
};
template <typename Problem>
struct ForwardPipe<Pipeline::qr_whole_k, Problem>
{
    using type = ck_tile::BlockFmhaPipelineQRKSVSWholeKPrefetch<Problem>;
};
template <typename Problem>
struct ForwardPipe<Pipeline::qs, Problem>
{
    using type = ck_tile::BlockFmhaPipelineQSKSVS<Problem>;
};

// What the pipelines have in common.
template <typename D>
struct ForwardShape
{
    using Shape = ck_tile::TileFmhaShape<ck_tile::sequence<D::m0, D::n0, D::k0, D::n1, D::k1, D::hdim_q>,
                                         typename D::Waves0,
                                         typename D::Mma0,
                                         typename D::Waves1,
                                         typename D::Mma1,
                                         D::v_row_major>;
    using Epilogue = ck_tile::Default2DEpilogue<
        ck_tile::Default2DEpilogueProblem<float, typename D::O, D::pad_q, D::pad_hdim_v != 0>>;
};

template <typename D, typename Mask>
struct ForwardProblem
{
    using Traits = ck_tile::TileFmhaTraits<D::pad_q,
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
                                           D::skip_min_seqlen_q>;
    using type   = ck_tile::BlockFmhaPipelineProblem<typename D::QKV,
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
                                                     typename ForwardShape<D>::Shape,
                                                     D::group_mode,
                                                     typename Parts<D>::Variant,
                                                     Mask,
                                                     D::pipeline == Pipeline::qr_async_trload,
                                                     Traits>;
};

template <typename D>
struct ForwardTypes
{
    using Problem = typename ForwardProblem<D, typename Parts<D>::Mask>::type;
    using Kernel  = ck_tile::FmhaFwdKernel<typename ForwardPipe<D::pipeline, Problem>::type,
                                           typename ForwardShape<D>::Epilogue>;
};

// The third version of the forward kernel: no bias, no dropout, no cap.
#if defined(TILEWRIGHT_CK_FMHA_V3_SHARED)
// Its problem is that of the others, with a mask of CK Tile's first form.
template <typename D>
struct ForwardV3Types
{
    static_assert(D::mask_form != MaskForm::any && D::sink == 0, "v3 has no such mask");
    using Mask    = ck_tile::GenericAttentionMask<D::mask_form != MaskForm::none, D::mask_form == MaskForm::window>;
    using Problem = typename ForwardProblem<D, Mask>::type;
    using Kernel  = ck_tile::FmhaFwdV3Kernel<ck_tile::BlockFmhaFwdV3Pipeline<Problem>,
                                             typename ForwardShape<D>::Epilogue>;
};
#else
template <typename D>
struct ForwardV3Types
{
    using Traits  = ck_tile::TileFmhaFwdV3Traits<D::pad_q,
                                                 D::pad_k,
                                                 D::pad_hdim_q != 0,
                                                 D::pad_hdim_v != 0,
                                                 D::lse,
                                                 Parts<D>::occupancy>;
    using Problem = ck_tile::BlockFmhaFwdV3PipelineProblem<typename D::QKV,
                                                           typename D::QKV,
                                                           typename D::QKV,
                                                           float,
                                                           float,
                                                           float,
                                                           typename D::P,
                                                           float,
                                                           typename D::O,
                                                           typename ForwardShape<D>::Shape,
                                                           D::group_mode,
                                                           typename Parts<D>::Mask,
                                                           Traits>;
    using Kernel  = ck_tile::FmhaFwdV3Kernel<ck_tile::BlockFmhaFwdV3Pipeline<Problem>,
                                             typename ForwardShape<D>::Epilogue>;
};
#endif

template <typename D>
struct Forward
{
    static constexpr bool v3 = D::pipeline == Pipeline::v3;
    using K = typename std::conditional_t<v3, ForwardV3Types<D>, ForwardTypes<D>>::Kernel;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check_struct,
                             check_mode<D>,
                             check_hdim_q<D>,
                             check_hdim_v<D, D::n1>,
                             check_seqlen_q<D>,
                             check_seqlen_k<D>,
                             check_mask<D>,
                             check_bias<D>,
                             check_lse<D>,
                             check_soft_cap<D>,
                             check_dropout<D>,
                             check_static_quant<D>,
                             check_pages<D>,
                             check_min_seqlen_q<D>,
                             check_strides_q_k_v,
                             check_vectors,
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
                                         need_randval,
                                         check_lengths_given);
        if(status != TW_OK)
            return status;
        return launch<K, K::kBlockPerCu>(grid(*args), arguments(*args), stream);
    }

    static void name_instances() { static_cast<void>(&ck_tile::kentry<K::kBlockPerCu, K, typename K::Kargs>); }

    private:
    static int check_rest(const tw_fmha_args* args)
    {
        if(args->num_splits != 0)
            return fail(TW_UNSUPPORTED, "the keys are in %lld parts, this kernel takes them as one", args->num_splits);
        // v3 reads the second of two tiles from LDS before it has come: only from three on does it wait there
        // (`if(2 < num_total_loop)` in block_fmha_fwd_v3_pipeline.hpp).
        if(v3 && args->seqlen_k > D::n0 && args->seqlen_k <= 2 * D::n0)
            return fail(TW_UNSUPPORTED,
                        "seqlen_k is %lld: this kernel is wrong about two tiles of %lld",
                        args->seqlen_k,
                        D::n0);
        return check_strides(args->o, "a stride of o is %lld, must be below 2^31");
    }

    // Heads that are not padded element by element are loaded and stored by vectors of 16 bytes.
    static int check_vectors(const tw_fmha_args* args)
    {
        constexpr int in = 16 / sizeof(typename D::QKV), out = 16 / sizeof(typename D::O);
        int status = TW_OK;
        if(D::pad_hdim_q != 1)
            status = first_refusal(args, divided<&tw_fmha_args::q, in>, divided<&tw_fmha_args::k, in>);
        if(status == TW_OK && D::pad_hdim_v != 1)
            status = divided<&tw_fmha_args::o, out>(args);
        if(status == TW_OK && (D::v_row_major ? D::pad_hdim_v != 1 : !D::pad_k))
            status = divided<&tw_fmha_args::v, in>(args);
        return status;
    }

    template <auto Tensor, int Vector>
    static int divided(const tw_fmha_args* args)
    {
        const tw_fmha_tensor& tensor = args->*Tensor;
        const int64_t strides[]      = {tensor.batch, tensor.head, tensor.row};
        for(const int64_t stride : strides)
            if(stride % Vector != 0)
                return fail(TW_UNSUPPORTED,
                            "a stride of q, k, v or o is %lld, without a pad of 1 it must be a multiple of %lld",
                            stride,
                            Vector);
        return TW_OK;
    }

    // Where lengths besides the starts are read. Kernels for batch mode know one length of queries and one of keys.
    static int check_lengths_given(const tw_fmha_args* args)
    {
        if(!D::group_mode && (args->seqlens_q != nullptr || args->seqlens_k != nullptr))
            return fail(TW_UNSUPPORTED, "seqlens_q and seqlens_k are read in group mode only");
        if(v3 && !v3_reads_seqlens_q && args->seqlens_q != nullptr)
            return fail(TW_UNSUPPORTED, "seqlens_q is not read by this pipeline");
        return TW_OK;
    }

    static dim3 grid(const tw_fmha_args& a)
    {
        if constexpr(v3)
            return K::GridSize(a.batch, a.heads, a.seqlen_q, a.hdim_v);
        else
            return K::GridSize(a.batch, a.heads, a.seqlen_q, a.hdim_v, D::group_mode && a.seqlens_k != nullptr);
    }

    static auto arguments(const tw_fmha_args& a)
    {
        if constexpr(v3 && D::group_mode)
            return v3_group_arguments(a);
        else if constexpr(v3)
            return v3_batch_arguments(a);
        else if constexpr(!D::dropout)
            return seeded_arguments(a, std::make_pair(uint64_t{0}, uint64_t{0}));
        else if(a.drop_seed_at != nullptr)
            return seeded_arguments(a, std::make_pair<const void*, const void*>(a.drop_seed_at, a.drop_offset_at));
        else
            return seeded_arguments(a, std::make_pair(a.drop_seed, a.drop_offset));
    }

    // ALiBi's slopes have a stride of the batch where an elementwise bias has one of the rows.
    static int64_t bias_row(const tw_fmha_args& a)
    {
        return D::bias == ck_tile::BlockAttentionBiasEnum::ALIBI ? a.bias.batch : a.bias.row;
    }

    template <typename SeedOffset>
    static auto seeded_arguments(const tw_fmha_args& a, const SeedOffset& seed_offset)
    {
        if constexpr(D::group_mode)
            return group_arguments(a, seed_offset);
        else
            return batch_arguments(a, seed_offset);
    }

    // What the lists of arguments have in common, and what newer ones have besides: scales of q, k and v with strides,
    // and blocks of scales. There are none.
#if defined(TILEWRIGHT_CK_FMHA_TRAITS_QUANT_SCALE)
    static constexpr auto no_descales = std::make_tuple(nullptr, nullptr, nullptr);
    static constexpr auto no_strides  = std::make_tuple(0, 0, 0);
    static constexpr auto no_blocks   = std::make_tuple(0, 0);

    static auto scales(const tw_fmha_args& a) { return std::make_tuple(a.scale, a.logits_cap); }
#else
    static constexpr std::tuple<> no_descales, no_strides, no_blocks;

    static auto scales(const tw_fmha_args& a) { return std::make_tuple(a.scale, a.scale_p, a.scale_o, a.logits_cap); }
#endif

    static auto sizes(const tw_fmha_args& a)
    {
        return std::make_tuple(a.hdim_q, a.hdim_v, a.heads, a.heads / a.kv_heads);
    }

    static auto inputs(const tw_fmha_args& a)
    {
        return std::tuple_cat(std::make_tuple(a.q.data, a.k.data, a.v.data, a.bias.data), no_descales);
    }

    static auto outputs(const tw_fmha_args& a) { return std::make_tuple(a.randval.data, a.lse.data, a.o.data); }

    static auto row_and_head_strides(const tw_fmha_args& a)
    {
        return std::tuple_cat(
            std::make_tuple(a.q.row, a.k.row, a.v.row, bias_row(a), a.randval.row, a.o.row),
            no_strides,
            std::make_tuple(
                a.q.head, a.k.head, a.v.head, a.bias.head, a.randval.head, a.lse.head, a.o.head),
            no_strides);
    }

    template <typename SeedOffset>
    static auto dropout(const tw_fmha_args& a, const SeedOffset& seed_offset)
    {
        return std::tuple_cat(
            std::make_tuple(static_cast<float>(a.p_drop), a.wants_randval != 0, seed_offset), no_blocks);
    }

    template <typename SeedOffset>
    static auto batch_arguments(const tw_fmha_args& a, const SeedOffset& seed_offset)
    {
        return make_arguments<K>(
            inputs(a),
            outputs(a),
            std::make_tuple(a.seqlen_q, a.seqlen_k),
            sizes(a),
            scales(a),
            row_and_head_strides(a),
            std::make_tuple(
                a.q.batch, a.k.batch, a.v.batch, a.bias.batch, a.randval.batch, a.lse.batch, a.o.batch),
            no_strides,
            window_of(a),
            dropout(a, seed_offset));
    }

    template <typename SeedOffset>
    static auto group_arguments(const tw_fmha_args& a, const SeedOffset& seed_offset)
    {
        return make_arguments<K>(inputs(a),
                                 outputs(a),
                                 std::make_tuple(a.seqstart_q, a.seqstart_k, a.seqlens_q, a.seqlens_k),
                                 no_descales,
                                 sizes(a),
                                 scales(a),
                                 row_and_head_strides(a),
                                 window_of(a),
                                 std::make_tuple(a.min_seqlen_q),
                                 dropout(a, seed_offset));
    }

    // The last number of both chooses an order of work-groups that the kernel does not look at.
    static auto v3_batch_arguments(const tw_fmha_args& a)
    {
        return make_arguments<K>(
            v3_tensors(a),
            std::make_tuple(a.seqlen_q, a.seqlen_k),
            v3_sizes_and_strides(a),
            std::make_tuple(a.q.batch, a.k.batch, a.v.batch, a.lse.batch, a.o.batch),
            std::make_tuple(a.window_left, a.window_right, a.mask, 0));
    }

    static auto v3_group_arguments(const tw_fmha_args& a)
    {
        return make_arguments<K>(v3_tensors(a),
                                 v3_lengths(a),
                                 v3_sizes_and_strides(a),
                                 std::make_tuple(a.window_left, a.window_right, a.mask, 0));
    }

#if defined(TILEWRIGHT_CK_FMHA_V3_SHARED)
    static constexpr bool v3_reads_seqlens_q = true;

    static auto v3_lengths(const tw_fmha_args& a)
    {
        return std::make_tuple(a.seqstart_q, a.seqstart_k, a.seqlens_q, a.seqlens_k);
    }

    static auto v3_scales(const tw_fmha_args& a) { return std::make_tuple(a.scale, a.logits_cap); }
#else
    static constexpr bool v3_reads_seqlens_q = false;

    static auto v3_lengths(const tw_fmha_args& a)
    {
        return std::make_tuple(a.seqstart_q, a.seqstart_k, a.seqlens_k);
    }

    static auto v3_scales(const tw_fmha_args& a) { return std::make_tuple(a.scale); }
#endif

    static auto v3_tensors(const tw_fmha_args& a)
    {
        return std::tuple_cat(std::make_tuple(a.q.data, a.k.data, a.v.data),
                              no_descales,
                              std::make_tuple(a.lse.data, a.o.data));
    }

    static auto v3_sizes_and_strides(const tw_fmha_args& a)
    {
        return std::tuple_cat(
            sizes(a),
            v3_scales(a),
            std::make_tuple(a.q.row, a.k.row, a.v.row, a.o.row),
            std::make_tuple(a.q.head, a.k.head, a.v.head, a.lse.head, a.o.head));
    }
};

} // namespace tilewright_fmha

#endif
