// The launcher of the family convert_dq: the sums of the queries' gradient, converted to its type.
#ifndef TILEWRIGHT_FMHA_CONVERT_DQ_HPP
#define TILEWRIGHT_FMHA_CONVERT_DQ_HPP

#include "tilewright_fmha_gradients.hpp"

namespace tilewright_fmha {

#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
// CK Tile's kernel knows one layout of the sums, with the parts of a head side by side, and reads their number from its
// own workspace. This one gives its pipeline the caller's layout.
template <typename Base, typename D>
struct ConvertDqKernel : Base
{
    using T    = typename D::QKV;
    using Pipe = typename Base::FmhaBwdConvertQGrad;

    struct Kargs
    {
        tw_fmha_tensor dq_acc, dq;
        const int32_t *seqstart_q_ptr, *seqstart_k_ptr, *seqlen_q_ptr, *seqlen_k_ptr;
        int seqlen_q, seqlen_k, hdim_q;
    };

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
        const int sequence = blockIdx.z;
        int queries = kargs.seqlen_q, keys = kargs.seqlen_k;
        const float* from = static_cast<const float*>(kargs.dq_acc.data) + int64_t{blockIdx.y} * kargs.dq_acc.head;
        T* to             = static_cast<T*>(kargs.dq.data) + int64_t{blockIdx.y} * kargs.dq.head;
        if constexpr(D::group_mode)
        {
            const int* q_starts = kargs.seqstart_q_ptr + sequence;
            const int* k_starts = kargs.seqstart_k_ptr + sequence;
            queries = kargs.seqlen_q_ptr != nullptr ? kargs.seqlen_q_ptr[sequence] : q_starts[1] - q_starts[0];
            keys    = kargs.seqlen_k_ptr != nullptr ? kargs.seqlen_k_ptr[sequence] : k_starts[1] - k_starts[0];
            from += int64_t{q_starts[0]} * kargs.dq_acc.row;
            to += int64_t{q_starts[0]} * kargs.dq.row;
        }
        else
        {
            from += sequence * kargs.dq_acc.batch;
            to += sequence * kargs.dq.batch;
        }
        const int first = ck_tile::amd_wave_read_first_lane(static_cast<int>(blockIdx.x) * D::m0);
        if(first >= queries)
            return;
        const int parts = D::deterministic ? (keys + D::n0 - 1) / D::n0 : 1;
        if(parts == 0)
            clear(to + first * kargs.dq.row, kargs.dq.row, min(queries - first, D::m0), kargs.hdim_q);
        else
            convert(kargs, from, to, first, queries, parts);
    }

    // The gradient of a sequence without keys.
    CK_TILE_DEVICE static void clear(T* dq, int64_t row, int rows, int columns)
    {
        for(int i = threadIdx.x; i < rows * columns; i += blockDim.x)
            dq[i / columns * row + i % columns] = ck_tile::type_convert<T>(0.0f);
    }

    CK_TILE_DEVICE static void
    convert(const Kargs& kargs, const float* from, T* to, int first, int queries, int parts)
    {
        using namespace ck_tile;
        using Rows    = number<D::m0>;
        using Columns = number<D::hdim_q>;
        const auto dq = pad_tensor_view(make_view<Pipe::kAlignmentQGrad>(to, queries, kargs.hdim_q, kargs.dq.row),
                                        make_tuple(Rows{}, Columns{}),
                                        sequence<D::pad_q, D::pad_hdim_q != 0>{});
        auto dq_window = make_tile_window(dq, make_tuple(Rows{}, Columns{}), {first, 0});
        if constexpr(D::deterministic)
        {
            const auto sums = pad_tensor_view(
                make_naive_tensor_view<address_space_enum::global>(
                    from,
                    make_tuple(parts, queries, kargs.hdim_q),
                    make_tuple(static_cast<int>(kargs.dq_acc.part), static_cast<int>(kargs.dq_acc.row), 1),
                    number<Pipe::kAlignmentQGradAcc>{},
                    number<1>{}),
                make_tuple(number<1>{}, Rows{}, Columns{}),
                sequence<false, D::pad_q, D::pad_hdim_q != 0>{});
            auto window = make_tile_window(sums, make_tuple(number<1>{}, Rows{}, Columns{}), {0, first, 0});
            Pipe{}(window, dq_window, parts);
        }
        else
        {
            const auto sums = pad_tensor_view(
                make_view<Pipe::kAlignmentQGradAcc>(from, queries, kargs.hdim_q, kargs.dq_acc.row),
                make_tuple(Rows{}, Columns{}),
                sequence<D::pad_q, D::pad_hdim_q != 0>{});
            auto window = make_tile_window(sums, make_tuple(Rows{}, Columns{}), {first, 0});
            Pipe{}(window, dq_window);
        }
    }

    template <int Alignment, typename Element>
    CK_TILE_DEVICE static auto make_view(Element* data, int rows, int columns, int64_t stride)
    {
        using namespace ck_tile;
        return make_naive_tensor_view<address_space_enum::global>(data,
                                                                  make_tuple(rows, columns),
                                                                  make_tuple(static_cast<int>(stride), 1),
                                                                  number<Alignment>{},
                                                                  number<1>{});
    }
};
#else
// CK Tile's kernel reads at least one part of the sums. A sequence without keys has none: its gradient is zero.
template <typename Base, typename D>
struct ConvertDqKernel : Base
{
    using T     = typename D::QKV;
    using Kargs = typename Base::Kargs;

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
        if constexpr(Base::kIsGroupMode && Base::kIsDeterministic)
        {
            const int sequence = blockIdx.z;
            const int* starts  = kargs.seqstart_k_ptr + sequence;
            const int keys = kargs.seqlen_k_ptr != nullptr ? kargs.seqlen_k_ptr[sequence] : starts[1] - starts[0];
            if(keys == 0)
            {
                clear(kargs, sequence);
                return;
            }
        }
        static_cast<const Base&>(*this)(kargs);
    }

    CK_TILE_DEVICE static void clear(const Kargs& kargs, int sequence)
    {
        const int* starts = kargs.seqstart_q_ptr + sequence;
        const int queries = kargs.seqlen_q_ptr != nullptr ? kargs.seqlen_q_ptr[sequence] : starts[1] - starts[0];
        const int first   = blockIdx.x * Base::kM0;
        const int rows    = min(queries - first, Base::kM0);
        T* dq             = static_cast<T*>(kargs.dq_ptr) + int64_t{blockIdx.y} * kargs.nhead_stride_dq +
                (int64_t{starts[0]} + first) * kargs.stride_dq;
        for(int i = threadIdx.x; i < rows * kargs.hdim_q; i += blockDim.x)
            dq[int64_t{i / kargs.hdim_q} * kargs.stride_dq + i % kargs.hdim_q] = ck_tile::type_convert<T>(0.0f);
    }
};
#endif

template <typename D>
struct ConvertDq
{
    // CK Tile's own hint where the config has none.
    static constexpr int occupancy = D::blocks_per_cu == 0 ? 2 : D::blocks_per_cu;
    using Traits  = ck_tile::TileFmhaBwdConvertQGradTraits<D::pad_q, D::pad_hdim_q != 0, occupancy>;
    using Problem = ck_tile::BlockFmhaBwdConvertQGradPipelineProblem<float,
                                                                     typename D::QKV,
                                                                     D::threads,
                                                                     D::m0,
#if defined(TILEWRIGHT_CK_FMHA_CONVERT_DQ_KEY_TILES)
                                                                     D::n0,
#endif
                                                                     D::hdim_q,
                                                                     D::group_mode,
                                                                     D::deterministic,
                                                                     Traits>;
    using K = ConvertDqKernel<ck_tile::FmhaBwdConvertQGradKernel<ck_tile::BlockFmhaBwdConvertQGrad<Problem>>,
                              D>;

    static int check(const tw_fmha_args* args) { return check_struct(args); }

    static int supports(const tw_fmha_args* args)
    {
        return first_refusal(args,
                             check,
                             check_mode<D>,
                             check_lengths<D>,
                             check_hdim_q<D>,
                             check_seqlen_q<D>,
                             check_parts,
                             check_all_views);
    }

    // How many parts a sequence has follows from its keys and n0, also where it has fewer than the longest.
    static int check_parts(const tw_fmha_args* args)
    {
        if((args->deterministic != 0) != D::deterministic)
            return fail(TW_UNSUPPORTED,
                        "the problem has deterministic = %lld, this kernel has %lld",
                        args->deterministic,
                        D::deterministic);
        const int64_t parts = D::deterministic ? (args->seqlen_k + D::n0 - 1) / D::n0 : 1;
        if(args->dq_parts != parts)
            return fail(TW_UNSUPPORTED,
                        "dq_acc has %lld parts, this kernel reads %lld of %lld keys each",
                        args->dq_parts,
                        parts,
                        D::n0);
        return TW_OK;
    }

    // The parts of dq_acc are seen as one tensor.
    static int check_all_views(const tw_fmha_args* args)
    {
        const auto& a = *args;
        return check_views({{"dq_acc", a.dq_acc, a.seqlen_q, a.hdim_q, sizeof(float), a.dq_parts},
                            {"dq", a.dq, a.seqlen_q, a.hdim_q, sizeof(typename D::QKV)}});
    }

    static int need_tensors(const tw_fmha_args* args)
    {
        if(args->dq_acc.data == nullptr || args->dq.data == nullptr)
            return fail(TW_BAD_ARGS, "dq_acc and dq must not be null");
        return need_starts<D>(args);
    }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
    static auto arguments(const tw_fmha_args& a)
    {
        return typename K::Kargs{a.dq_acc,
                                 a.dq,
                                 a.seqstart_q,
                                 a.seqstart_k,
                                 a.seqlens_q,
                                 a.seqlens_k,
                                 static_cast<int>(a.seqlen_q),
                                 static_cast<int>(a.seqlen_k),
                                 static_cast<int>(a.hdim_q)};
    }
#else
    static auto arguments(const tw_fmha_args& a)
    {
        if constexpr(D::group_mode)
            return K::MakeKargs(a.dq_acc.data,
                                a.dq.data,
                                a.seqstart_q,
                                a.seqstart_k,
                                a.seqlens_q,
                                a.seqlens_k,
                                nullptr,
                                nullptr,
                                a.hdim_q,
                                a.dq.row,
                                a.dq_acc.row,
                                a.dq.head,
                                a.dq_acc.head,
                                a.dq_acc.part);
        else
            return K::MakeKargs(a.dq_acc.data,
                                a.dq.data,
                                a.seqlen_q,
                                a.seqlen_k,
                                a.hdim_q,
                                a.dq.row,
                                a.dq_acc.row,
                                a.dq.head,
                                a.dq_acc.head,
                                a.dq.batch,
                                a.dq_acc.batch,
                                a.dq_acc.part);
    }
#endif

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
