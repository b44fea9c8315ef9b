// The launcher of the family combine: joins what splitkv computed of each part.
#ifndef TILEWRIGHT_FMHA_COMBINE_HPP
#define TILEWRIGHT_FMHA_COMBINE_HPP

#include "tilewright_fmha_kernel.hpp"

namespace tilewright_fmha {

template <typename D>
struct CombineTypes
{
    using Traits  = ck_tile::TileFmhaFwdSplitKVCombineTraits<D::pad_q,
                                                             D::pad_hdim_v != 0,
                                                             D::lse,
                                                             D::static_quant,
                                                             D::log_max_splits,
                                                             Parts<D>::occupancy>;
    using Problem = ck_tile::BlockFmhaSplitKVCombinePipelineProblem<float,
                                                                    float,
                                                                    typename D::O,
                                                                    D::hdim_v,
                                                                    D::group_mode,
                                                                    D::n1,
                                                                    Traits>;
    using Pipe     = ck_tile::BlockFmhaFwdSplitKVCombinePipeline<Problem>;
    // A lane stores single elements. CK Tile's raw stores have none of one byte.
    using Epilogue = ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float,
                                                                                 typename D::O,
                                                                                 D::pad_q,
                                                                                 D::pad_hdim_v != 0,
                                                                                 (sizeof(typename D::O) > 1)>>;
    using Kernel = ck_tile::FmhaFwdSplitKVCombineKernel<Pipe, Epilogue>;
};

template <typename D>
struct Combine
{
    using K = typename CombineTypes<D>::Kernel;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check_struct,
                             check_mode<D>,
                             check_hdim_v<D, D::hdim_v>,
                             check_rows,
                             check_splits,
                             check_lse<D>,
                             check_static_quant<D>,
                             check_all_strides);
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

    static int run(const tw_fmha_args* args, hipStream_t stream)
    {
        const int status = first_refusal(args, supports, need_acc, need_o, need_lse<D>, need_start);
        if(status != TW_OK)
            return status;
        const auto& a = *args;
        return launch<K, K::kBlockPerCu>(K::GridSize(a.batch, a.heads, a.seqlen_q, a.hdim_v), arguments(a), stream);
    }

    static void name_instances() { static_cast<void>(&ck_tile::kentry<K::kBlockPerCu, K, typename K::Kargs>); }

    private:
    // Rows of one work-group: a wave's lanes, each with 16 bytes of a row of n1 numbers.
    static int check_rows(const tw_fmha_args* args)
    {
        // Of a wave of 64 lanes; those of 32 have half as many. Which it is follows from the device that runs, and
        // none may be there yet.
        const int64_t rows = 64 / (D::n1 / 4);
        if(!D::pad_q && !D::group_mode && args->seqlen_q % rows != 0)
            return fail(TW_UNSUPPORTED,
                        "seqlen_q is %lld, without padding it must be a multiple of %lld",
                        args->seqlen_q,
                        rows);
        return TW_OK;
    }

    static int check_splits(const tw_fmha_args* args)
    {
        if(args->num_splits < 1 || args->num_splits > int64_t{1} << D::log_max_splits)
            return fail(TW_UNSUPPORTED,
                        "there are %lld parts, this kernel joins 1 to %lld",
                        args->num_splits,
                        1 << D::log_max_splits);
        return TW_OK;
    }

    static int check_all_strides(const tw_fmha_args* args)
    {
        int status = check_strides(args->o_acc, "a stride of o_acc is %lld, must be below 2^31");
        if(status == TW_OK)
            status = check_strides(args->lse_acc, "a stride of lse_acc is %lld, must be below 2^31");
        return status != TW_OK ? status : check_strides(args->o, "a stride of o is %lld, must be below 2^31");
    }

    static int need_acc(const tw_fmha_args* args)
    {
        const int status = need(args->o_acc.data, "o_acc must not be null");
        return status != TW_OK ? status : need(args->lse_acc.data, "lse_acc must not be null");
    }

    static int need_start(const tw_fmha_args* args)
    {
        return D::group_mode ? need(args->seqstart_q, "seqstart_q must not be null in group mode") : TW_OK;
    }

    static auto arguments(const tw_fmha_args& a)
    {
        if constexpr(D::group_mode)
            return K::MakeKargs(a.lse_acc.data,
                                a.o_acc.data,
                                a.lse.data,
                                a.o.data,
                                a.batch,
                                a.seqstart_q,
                                a.hdim_v,
                                a.num_splits,
                                a.scale_o,
                                a.o_acc.row,
                                a.o.row,
                                a.lse_acc.head,
                                a.o_acc.head,
                                a.lse.head,
                                a.o.head,
                                a.lse_acc.part,
                                a.o_acc.part);
        else
            return K::MakeKargs(a.lse_acc.data,
                                a.o_acc.data,
                                a.lse.data,
                                a.o.data,
                                a.batch,
                                a.seqlen_q,
                                a.hdim_v,
                                a.num_splits,
                                a.scale_o,
                                a.o_acc.row,
                                a.o.row,
                                a.lse_acc.head,
                                a.o_acc.head,
                                a.lse.head,
                                a.o.head,
                                a.lse_acc.batch,
                                a.o_acc.batch,
                                a.lse.batch,
                                a.o.batch,
                                a.lse_acc.part,
                                a.o_acc.part);
    }
};

} // namespace tilewright_fmha

#endif
