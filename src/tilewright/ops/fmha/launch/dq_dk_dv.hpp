// The launcher of the family dq_dk_dv: gradients of queries, keys and values, and of the bias.
#ifndef TILEWRIGHT_FMHA_DQ_DK_DV_HPP
#define TILEWRIGHT_FMHA_DQ_DK_DV_HPP

#include "tilewright_fmha_dq_dk_dv_kernel.hpp"
#include "tilewright_fmha_gradients.hpp"

namespace tilewright_fmha {

template <typename D>
struct DqDkDv
{
    using Types = DqDkDvTypes<D>;
    using K     = typename Types::Kernel;
    using T     = typename Types::T;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check,
                             check_mode<D>,
                             check_lengths<D>,
                             check_hdim_q<D>,
                             check_hdim_v<D, D::hdim_v>,
                             check_mask<D>,
                             check_bias<D>,
                             check_dropout<D>,
                             check_options,
                             check_queries,
                             check_parts,
                             check_all_views);
    }

    static int check_options(const tw_fmha_args* args)
    {
        if(args->logits_cap != 0)
            return fail(TW_UNSUPPORTED, "scores have a cap of %lld millionths, which has no gradient here",
                        args->logits_cap * 1e6);
        if((args->bias_gradient != 0) != D::bias_gradient)
            return fail(TW_UNSUPPORTED, "the problem has bias_gradient = %lld, this kernel has %lld",
                        args->bias_gradient, D::bias_gradient);
        if((args->wants_randval != 0) != D::store_randval)
            return fail(TW_UNSUPPORTED, "the problem has store_randval = %lld, this kernel has %lld",
                        args->wants_randval, D::store_randval);
        if((args->deterministic != 0) != D::deterministic)
            return fail(TW_UNSUPPORTED, "the problem has deterministic = %lld, this kernel has %lld",
                        args->deterministic, D::deterministic);
        return check_pages<D>(args);
    }

    static int check_queries(const tw_fmha_args* args)
    {
        if(D::max_seqlen_q != 0 && args->seqlen_q > D::max_seqlen_q)
            return fail(TW_UNSUPPORTED, "seqlen_q is %lld, this kernel has at most %lld", args->seqlen_q,
                        D::max_seqlen_q);
        return TW_OK;
    }

    // Sums in a fixed order have one part for each tile of keys.
    static int check_parts(const tw_fmha_args* args)
    {
        const int64_t parts = D::deterministic && !Types::whole_head ? (args->seqlen_k + D::n0 - 1) / D::n0 : 1;
        if(args->dq_parts != parts)
            return fail(TW_UNSUPPORTED, "dq_acc has %lld parts, this kernel writes %lld of %lld keys each",
                        args->dq_parts, parts, D::n0);
        return TW_OK;
    }

    static int check_all_views(const tw_fmha_args* args)
    {
        const auto& a = *args;
        // LSE and d are read with the same strides.
        if(a.lse.batch != a.d.batch || a.lse.head != a.d.head || a.lse.row != 1 || a.d.row != 1)
            return fail(TW_UNSUPPORTED, "lse and d must have the same strides and packed rows: the heads of lse are "
                        "%lld apart, those of d %lld", a.lse.head, a.d.head);
#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
        if(!Types::whole_head && a.dq_acc.row != a.hdim_q)
            return fail(TW_UNSUPPORTED, "the rows of dq_acc are %lld elements apart, must be packed: hdim_q = %lld",
                        a.dq_acc.row, a.hdim_q);
#endif
        // A kernel has 2^16 - 1 work-groups along y and z at most; parts are cleared side by side.
        constexpr int64_t most = 65535;
        if(a.heads > most || a.batch > most / a.dq_parts)
            return fail(TW_UNSUPPORTED, "%lld heads, or %lld sequences in %lld parts, are above 65535", a.heads,
                        a.batch, a.dq_parts);
        if(shares_heads(a) && !fits_int32(a.seqlen_k * a.heads * std::max(a.hdim_q, a.hdim_v) * sizeof(T)))
            return fail(TW_UNSUPPORTED, "%lld keys of %lld heads are too many for the workspace's strides", a.seqlen_k,
                        a.heads);
        return check_views({{"q", a.q, a.seqlen_q, a.hdim_q, sizeof(T)},
                            {"k", a.k, a.seqlen_k, a.hdim_q, sizeof(T)},
                            {"v", a.v, a.seqlen_k, a.hdim_v, sizeof(T)},
                            {"bias", a.bias, a.seqlen_q, a.seqlen_k, sizeof(typename D::Bias)},
                            {"lse", a.lse, a.seqlen_q, 1, sizeof(float)},
                            {"d_o", a.d_o, a.seqlen_q, a.hdim_v, sizeof(typename D::O)},
                            {"dq_acc", a.dq_acc, a.seqlen_q, a.hdim_q, sizeof(float)},
                            {"dk", a.dk, a.seqlen_k, a.hdim_q, sizeof(T)},
                            {"dv", a.dv, a.seqlen_k, a.hdim_v, sizeof(T)},
                            {"dbias", a.dbias, a.seqlen_q, a.seqlen_k, sizeof(typename D::Bias)},
                            {"randval", a.randval, a.seqlen_q, a.seqlen_k, sizeof(uint8_t)}});
    }

    static int need_tensors(const tw_fmha_args* args)
    {
        const auto& a = *args;
        if(a.lse.data == nullptr || a.d_o.data == nullptr || a.d.data == nullptr)
            return fail(TW_BAD_ARGS, "lse, d_o and d must not be null");
        if(a.dq_acc.data == nullptr || a.dk.data == nullptr || a.dv.data == nullptr)
            return fail(TW_BAD_ARGS, "dq_acc, dk and dv must not be null");
        if(const auto beyond = reinterpret_cast<uintptr_t>(a.dq_acc.data) % sizeof(float);
           Types::adds && beyond != 0)
            return fail(TW_UNSUPPORTED, "dq_acc begins %lld bytes past a multiple of the %lld bytes that an atomic add "
                        "takes; align it, or use a deterministic kernel", beyond, sizeof(float));
        if(D::bias_gradient && a.dbias.data == nullptr)
            return fail(TW_BAD_ARGS, "dbias must not be null");
        const uint64_t needed = workspace_bytes(a);
        if(needed > 0 && (a.workspace == nullptr || a.workspace_size < needed))
            return fail(TW_WORKSPACE, "the workspace has %lld bytes, this problem needs %lld", a.workspace_size,
                        needed);
        return first_refusal(args, need_q_k_v, need_bias<D>, need_randval, need_starts<D>);
    }

    // CK Tile writes dk and dv of each query head. Where they share key heads, that is to the workspace.
    static bool shares_heads(const tw_fmha_args& a) { return a.heads != a.kv_heads; }

    static uint64_t round_up(uint64_t bytes)
    {
        constexpr uint64_t alignment = 256;
        return (bytes + alignment - 1) / alignment * alignment;
    }

    static uint64_t workspace_dk(const tw_fmha_args& a)
    {
        return round_up(a.batch * a.seqlen_k * a.heads * a.hdim_q * sizeof(T));
    }

    static uint64_t workspace_dv(const tw_fmha_args& a)
    {
        return a.batch * a.seqlen_k * a.heads * a.hdim_v * sizeof(T);
    }

    static uint64_t workspace_gradients(const tw_fmha_args& a)
    {
        return shares_heads(a) ? workspace_dk(a) + workspace_dv(a) : 0;
    }

    static uint64_t workspace_bytes(const tw_fmha_args& a)
    {
        if(!Types::reads_offsets)
            return workspace_gradients(a);
        return round_up(workspace_gradients(a)) + a.batch * sizeof(ck_tile::long_index_t);
    }

    // Where a fixed order of sums reads an offset for each sequence, in the workspace. They are 0.
    static void* offsets_of(const tw_fmha_args& a)
    {
        return static_cast<char*>(a.workspace) + round_up(workspace_gradients(a));
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes           = 0;
        const int status = supports(args);
        if(status == TW_OK)
            *bytes = workspace_bytes(*args);
        return status;
    }

    // The tensor of gradients that CK Tile writes: a part of the workspace, or the caller's.
    static tw_fmha_tensor expanded(const tw_fmha_args& a, const tw_fmha_tensor& of, uint64_t offset, int64_t columns)
    {
        if(!shares_heads(a))
            return of;
        return {static_cast<char*>(a.workspace) + offset,
                0,
                a.seqlen_k * a.heads * columns,
                columns,
                a.heads * columns};
    }

    static auto arguments(const tw_fmha_args& a)
    {
        const auto dk = expanded(a, a.dk, 0, a.hdim_q);
        const auto dv = expanded(a, a.dv, workspace_dk(a), a.hdim_v);
        // The slopes of ALiBi have a stride from batch to batch only, in the place of a row's.
        const int64_t bias_row = a.bias_kind == TW_FMHA_ALIBI ? a.bias.batch : a.bias.row;
        std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>> seed =
            std::pair<uint64_t, uint64_t>{a.drop_seed, a.drop_offset};
        if(a.drop_seed_at != nullptr)
            seed = std::pair<const void*, const void*>{a.drop_seed_at, a.drop_offset_at};
        const float p_drop = static_cast<float>(a.p_drop);
        const float scale  = static_cast<float>(a.scale);
        const auto inputs  = std::make_tuple(a.q.data, a.k.data, a.v.data, a.bias.data, a.lse.data, a.d_o.data,
                                             a.d.data, a.randval.data);
        const auto outputs = std::make_tuple(dk.data, dv.data, a.dbias.data);
        const auto lengths = [&] {
            if constexpr(D::group_mode)
                return std::make_tuple(a.seqstart_q, a.seqstart_k, a.seqlens_q, a.seqlens_k, nullptr, nullptr);
            else
                return std::make_tuple(a.seqlen_q, a.seqlen_k);
        }();
        const auto sizes   = std::make_tuple(a.hdim_q, a.hdim_v, a.heads, a.heads / a.kv_heads, scale);
        const auto strides = std::make_tuple(
            a.q.row, a.k.row, a.v.row, bias_row, a.randval.row, a.d_o.row, a.dq_acc.row, dk.row, dv.row, a.dbias.row,
            a.q.head, a.k.head, a.v.head, a.bias.head, a.randval.head, a.d_o.head, a.d.head, a.dq_acc.head, dk.head,
            dv.head, a.dbias.head);
        const auto batches = [&] {
            if constexpr(D::group_mode)
                return std::make_tuple();
            else
                return std::make_tuple(a.q.batch, a.k.batch, a.v.batch, a.bias.batch, a.randval.batch, a.d_o.batch,
                                       a.d.batch, a.dq_acc.batch, dk.batch, dv.batch, a.dbias.batch);
        }();
        const auto rest = std::make_tuple(a.window_left, a.window_right, a.mask, p_drop, seed);
        const auto make = [](const auto&... values) { return K::MakeKargsImpl(values...); };
        const int workspace_rows = D::group_mode && shares_heads(a) ? static_cast<int>(a.seqlen_k) : 0;
#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
        // CK Tile's workspace has the sums, in a layout of its own, and tables for a fixed order: see DqDkDvKernel.
        const auto no_workspace = std::make_tuple(static_cast<void*>(nullptr));
        auto kargs = call_with(make, inputs, std::make_tuple(a.dq_acc.data), outputs, no_workspace, lengths,
                               std::make_tuple(a.batch), sizes, strides, batches, rest);
        if constexpr(Types::reads_offsets)
            kargs.dq_acc_batch_offset_ptr = static_cast<const ck_tile::long_index_t*>(offsets_of(a));
        return typename K::Kargs{kargs, workspace_rows, a.dq_acc};
#else
        return typename K::Kargs{
            call_with(make, inputs, outputs, std::make_tuple(a.dq_acc.data), lengths, sizes, strides, batches,
                      std::make_tuple(a.dq_acc.part), rest),
            workspace_rows};
#endif
    }

    // Rows of a tensor of queries or of keys; `starts` are null where sequences do not follow each other.
    template <typename Element>
    static int clear_rows(const tw_fmha_args& a, const tw_fmha_tensor& tensor, int64_t parts, int64_t rows,
                          int64_t columns, const int32_t* starts, hipStream_t stream)
    {
        constexpr int threads = 256;
        const dim3 grid(static_cast<uint32_t>((rows * columns + threads - 1) / threads),
                        static_cast<uint32_t>(a.heads),
                        static_cast<uint32_t>(a.batch * parts));
        clear<Element><<<grid, dim3(threads), 0, stream>>>(tensor, a.batch, rows, columns, starts);
        return launched();
    }

    template <typename Element>
    static int clear_queries(const tw_fmha_args& a, const tw_fmha_tensor& tensor, int64_t parts, int64_t columns,
                             hipStream_t stream)
    {
        const int32_t* starts = D::group_mode ? a.seqstart_q : nullptr;
        return clear_rows<Element>(a, tensor, parts, a.seqlen_q, columns, starts, stream);
    }

    static int clear_offsets(const tw_fmha_args& a, hipStream_t stream)
    {
        constexpr int threads = 256;
        const dim3 grid(static_cast<uint32_t>((a.batch + threads - 1) / threads));
        const tw_fmha_tensor offsets{offsets_of(a), 0, 0, 0, 1};
        clear<ck_tile::long_index_t><<<grid, dim3(threads), 0, stream>>>(offsets, 1, a.batch, 1, nullptr);
        return launched();
    }

    // A masked kernel does not visit tiles without a visible key, and in group mode sequences may have no keys.
    static constexpr bool masked      = D::mask_form != MaskForm::none;
    static constexpr bool leaves_gaps = masked || D::group_mode;

    static int clear_results(const tw_fmha_args& a, hipStream_t stream)
    {
        int status = TW_OK;
        if(leaves_gaps || Types::adds)
            status = clear_queries<float>(a, a.dq_acc, a.dq_parts, a.hdim_q, stream);
        if constexpr(Types::reads_offsets)
            if(status == TW_OK)
                status = clear_offsets(a, stream);
        if constexpr(D::bias_gradient && leaves_gaps)
            if(status == TW_OK)
                status = clear_queries<typename D::Bias>(a, a.dbias, 1, a.seqlen_k, stream);
        if constexpr(D::store_randval && leaves_gaps)
            if(status == TW_OK)
                status = clear_queries<uint8_t>(a, a.randval, 1, a.seqlen_k, stream);
        // The pipeline means to write zeros behind the last visible key, but takes the tile's length for the keys'.
        if constexpr(Types::whole_head && masked)
            for(const auto& [of, offset, columns] : {std::tuple{a.dk, uint64_t{0}, a.hdim_q},
                                                     std::tuple{a.dv, workspace_dk(a), a.hdim_v}})
                if(status == TW_OK)
                    status = clear_rows<T>(a, expanded(a, of, offset, columns), 1, a.seqlen_k, columns,
                                           D::group_mode && !shares_heads(a) ? a.seqstart_k : nullptr, stream);
        return status;
    }

    static int sum_into(const tw_fmha_tensor& to, const void* from, const tw_fmha_args& a, int64_t columns,
                        hipStream_t stream)
    {
        constexpr int threads = 256;
        const dim3 grid(static_cast<uint32_t>((a.seqlen_k * columns + threads - 1) / threads),
                        static_cast<uint32_t>(a.kv_heads),
                        static_cast<uint32_t>(a.batch));
        sum_heads<T><<<grid, dim3(threads), 0, stream>>>(static_cast<const T*>(from),
                                                        to,
                                                        a.seqlen_k,
                                                        a.heads / a.kv_heads,
                                                        columns,
                                                        D::group_mode ? a.seqstart_k : nullptr,
                                                        a.seqlens_k);
        return launched();
    }

    static int run(const tw_fmha_args* args, hipStream_t stream)
    {
        if(const int status = first_refusal(args, supports, need_tensors); status != TW_OK)
            return status;
        const auto& a = *args;
        int status = clear_results(a, stream);
        if(status == TW_OK)
            status = launch<K, Types::occupancy>(grid(a), arguments(a), stream);
        if(status != TW_OK || !shares_heads(a))
            return status;
        status = sum_into(a.dk, a.workspace, a, a.hdim_q, stream);
        if(status != TW_OK)
            return status;
        return sum_into(a.dv, static_cast<char*>(a.workspace) + workspace_dk(a), a, a.hdim_v, stream);
    }

    // One work-group for a tile of keys, or for all of them. CK Tile's own grid may have one for each compute unit.
    static dim3 grid(const tw_fmha_args& a)
    {
        return dim3(Types::whole_head ? 1 : (a.seqlen_k + D::n0 - 1) / D::n0, a.heads, a.batch);
    }

    static int launched()
    {
        if(const auto error = hipGetLastError(); error != hipSuccess)
            return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
        return TW_OK;
    }

    // In the order of their launches, in which a whole host pass would make the compiler meet them.
    static void name_instances()
    {
        static_cast<void>(&clear<float>);
        if constexpr(Types::reads_offsets)
            static_cast<void>(&clear<ck_tile::long_index_t>);
        if constexpr(D::bias_gradient && leaves_gaps)
            static_cast<void>(&clear<typename D::Bias>);
        if constexpr(D::store_randval && leaves_gaps)
            static_cast<void>(&clear<uint8_t>);
        if constexpr(Types::whole_head && masked)
            static_cast<void>(&clear<T>);
        static_cast<void>(&ck_tile::kentry<Types::occupancy, K, typename K::Kargs>);
        static_cast<void>(&sum_heads<T>);
    }
};

} // namespace tilewright_fmha

#endif
