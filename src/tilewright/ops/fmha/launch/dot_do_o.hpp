// The launcher of the family dot_do_o: for each query the sum of its output times the output's gradient.
#ifndef TILEWRIGHT_FMHA_DOT_DO_O_HPP
#define TILEWRIGHT_FMHA_DOT_DO_O_HPP

#include "tilewright_fmha_gradients.hpp"

namespace tilewright_fmha {

template <typename D>
struct DotDoO
{
    // CK Tile's own hint where the config has none.
    static constexpr int occupancy = D::blocks_per_cu == 0 ? 2 : D::blocks_per_cu;
    using Traits  = ck_tile::TileFmhaBwdOGradDotOTraits<D::pad_q, D::pad_hdim_v != 0, occupancy>;
    using Problem = ck_tile::BlockFmhaBwdOGradDotOPipelineProblem<typename D::O,
                                                                  typename D::O,
                                                                  float,
#if defined(TILEWRIGHT_CK_FMHA_DOT_DO_O_LSE)
                                                                  float, // LSE, for the gradient of sinks
#endif
                                                                  D::threads,
                                                                  D::hdim_v,
                                                                  D::group_mode,
                                                                  Traits>;
    using K       = ck_tile::FmhaBwdOGradDotOKernel<ck_tile::BlockFmhaBwdOGradDotO<Problem>>;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check,
                             check_mode<D>,
                             check_lengths<D>,
                             check_hdim_v<D, D::hdim_v>,
                             check_rows,
                             check_kept,
                             check_all_views);
    }

    // A work-group has one query for each of its threads.
    static int check_rows(const tw_fmha_args* args)
    {
        if(!D::pad_q && !D::group_mode && args->seqlen_q % D::threads != 0)
            return fail(TW_UNSUPPORTED,
                        "seqlen_q is %lld, without padding it must be a multiple of the %lld threads",
                        args->seqlen_q,
                        D::threads);
        return TW_OK;
    }

    // Any kernel of the family takes dropout: the sums are scaled by what was kept.
    static int check_kept(const tw_fmha_args* args)
    {
        if(!(args->p_drop >= 0) || args->p_drop >= 1)
            return fail(TW_BAD_ARGS, "p_drop is %lld millionths, must be 0 or more and below 1", args->p_drop * 1e6);
        return TW_OK;
    }

    static int check_all_views(const tw_fmha_args* args)
    {
        const auto& a = *args;
        if(a.d.row != 1)
            return fail(TW_UNSUPPORTED, "the rows of d are %lld apart, must be 1", a.d.row);
        return check_views({{"o", a.o, a.seqlen_q, a.hdim_v, sizeof(typename D::O)},
                            {"d_o", a.d_o, a.seqlen_q, a.hdim_v, sizeof(typename D::O)},
                            {"d", a.d, a.seqlen_q, 1, sizeof(float)}});
    }

    static int need_tensors(const tw_fmha_args* args)
    {
        if(args->o.data == nullptr || args->d_o.data == nullptr || args->d.data == nullptr)
            return fail(TW_BAD_ARGS, "o, d_o and d must not be null");
        if(D::group_mode && args->seqstart_q == nullptr)
            return fail(TW_BAD_ARGS, "seqstart_q must not be null in group mode");
        return TW_OK;
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

    // Newer kernels also compute the gradient of sinks, from LSE; without sinks it is not written.
#if defined(TILEWRIGHT_CK_FMHA_DOT_DO_O_LSE)
    static constexpr auto no_sinks = std::make_tuple(nullptr, nullptr, nullptr);
    static auto sizes(const tw_fmha_args& a) { return std::make_tuple(a.hdim_v, a.heads); }
#else
    static constexpr std::tuple<> no_sinks;
    static auto sizes(const tw_fmha_args& a) { return std::make_tuple(a.hdim_v); }
#endif

    static auto arguments(const tw_fmha_args& a)
    {
        const auto tensors = std::make_tuple(a.o.data, a.d_o.data, a.d.data);
        const auto kept    = std::make_tuple(static_cast<float>(1.0 - a.p_drop));
        const auto strides = std::make_tuple(a.d_o.row, a.o.row, a.d_o.head, a.o.head, a.d.head);
        if constexpr(D::group_mode)
            return make_arguments<K>(
                tensors, no_sinks, kept, std::make_tuple(a.seqstart_q, a.seqlens_q, nullptr), sizes(a), strides);
        else
            return make_arguments<K>(tensors,
                                     no_sinks,
                                     kept,
                                     std::make_tuple(a.seqlen_q),
                                     sizes(a),
                                     strides,
                                     std::make_tuple(a.d_o.batch, a.o.batch, a.d.batch));
    }

    static int run(const tw_fmha_args* args, hipStream_t stream)
    {
        if(const int status = first_refusal(args, supports, need_tensors); status != TW_OK)
            return status;
        const auto& a = *args;
        return launch<K, occupancy>(K::GridSize(a.batch, a.heads, a.seqlen_q), arguments(a), stream);
    }

    static void name_instances() { static_cast<void>(&ck_tile::kentry<occupancy, K, typename K::Kargs>); }
};

} // namespace tilewright_fmha

#endif
