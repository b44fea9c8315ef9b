// The kernels that the launcher of the family dq_dk_dv starts: CK Tile's, and two small ones before and after it.
#ifndef TILEWRIGHT_FMHA_DQ_DK_DV_KERNEL_HPP
#define TILEWRIGHT_FMHA_DQ_DK_DV_KERNEL_HPP

#include "tilewright_fmha_kernel.hpp"

namespace ck_tile {

// CK Tile's barrier says nothing to the compiler about memory, and it sinks loads from LDS behind it: with kr_ktr_vr
// those of the values, to where other waves overwrite them with queries. An empty statement that may touch all memory
// keeps them in place; a fence does not, since MachineSink does not count it as a store.
template <>
CK_TILE_DEVICE void block_sync_lds<0>()
{
    asm volatile("" ::: "memory");
    s_waitcnt_barrier<waitcnt_arg::kMaxVmCnt, waitcnt_arg::kMaxExpCnt, 0>();
    asm volatile("" ::: "memory");
}

} // namespace ck_tile

namespace tilewright_fmha {

// Clears elements of a tensor that CK Tile's kernel adds to or does not visit. z counts parts and sequences.
template <typename T>
__global__ void clear(tw_fmha_tensor tensor, int64_t batch, int64_t rows, int64_t columns, const int32_t* starts)
{
    const int64_t sequence = blockIdx.z % batch;
    T* first               = static_cast<T*>(tensor.data) + blockIdx.z / batch * tensor.part + blockIdx.y * tensor.head;
    if(starts == nullptr)
        first += sequence * tensor.batch;
    else
    {
        first += starts[sequence] * tensor.row;
        rows = starts[sequence + 1] - starts[sequence];
    }
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for(int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * columns; i += step)
        first[i / columns * tensor.row + i % columns] = T{};
}

// Adds the gradients that the query heads of one key head have: from (sequence, row, query head, column), packed.
template <typename T>
__global__ void sum_heads(const T* from,
                          tw_fmha_tensor to,
                          int64_t rows,
                          int64_t sharing,
                          int64_t columns,
                          const int32_t* starts,
                          const int32_t* lengths)
{
    const int64_t sequence = blockIdx.z;
    const int64_t heads    = sharing * gridDim.y;
    from += (sequence * rows * heads + blockIdx.y * sharing) * columns;
    T* first = static_cast<T*>(to.data) + blockIdx.y * to.head;
    if(starts == nullptr)
        first += sequence * to.batch;
    else
    {
        first += starts[sequence] * to.row;
        rows = lengths != nullptr ? lengths[sequence] : starts[sequence + 1] - starts[sequence];
    }
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if(i >= rows * columns)
        return;
    const int64_t row = i / columns, column = i % columns;
    float sum = 0;
    for(int64_t head = 0; head < sharing; ++head)
        sum += ck_tile::type_convert<float>(from[(row * heads + head) * columns + column]);
    first[row * to.row + column] = ck_tile::type_convert<T>(sum);
}

// CK Tile's kernel leaves a sequence without queries alone: the gradients of its keys and values are zero. In group
// mode it finds rows of dk and dv by the first key of a sequence, also where they lie in the workspace.
template <typename Base>
struct DqDkDvKernel : Base
{
    struct Kargs : Base::Kargs
    {
        int workspace_rows; // of a sequence, where dk and dv are in the workspace; 0: they are those of the caller
#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
        tw_fmha_tensor dq_acc;
#endif
    };

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
        if constexpr(Base::kIsGroupMode)
        {
            const int sequence = blockIdx.z;
            const int* starts  = kargs.seqstart_k_ptr + sequence;
            if(kargs.workspace_rows > 0)
            {
                const int64_t rows = int64_t{sequence} * kargs.workspace_rows - starts[0];
                kargs.dk_ptr = static_cast<typename Base::KGradDataType*>(kargs.dk_ptr) + rows * kargs.stride_dk;
                kargs.dv_ptr = static_cast<typename Base::VGradDataType*>(kargs.dv_ptr) + rows * kargs.stride_dv;
            }
            const int* q_starts = kargs.seqstart_q_ptr + sequence;
            const int queries =
                kargs.seqlen_q_ptr != nullptr ? kargs.seqlen_q_ptr[sequence] : q_starts[1] - q_starts[0];
            if(queries == 0)
            {
                const int keys = kargs.seqlen_k_ptr != nullptr ? kargs.seqlen_k_ptr[sequence] : starts[1] - starts[0];
                clear_tile<typename Base::KGradDataType>(
                    kargs.dk_ptr, kargs.nhead_stride_dk, kargs.stride_dk, starts[0], keys, kargs.hdim_q);
                clear_tile<typename Base::VGradDataType>(
                    kargs.dv_ptr, kargs.nhead_stride_dv, kargs.stride_dv, starts[0], keys, kargs.hdim_v);
                return;
            }
        }
#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
        if constexpr(!Base::kUseQrQtrDorPipeline)
            kargs.dq_acc_ptr = find_sums(kargs);
        // Not CK Tile's operator: in a fixed order of sums it gives a work-group several tiles of keys.
        this->run_(static_cast<const typename Base::Kargs&>(kargs), dim3(blockIdx.x, blockIdx.y, blockIdx.z), 0, 0);
#else
        static_cast<const Base&>(*this)(static_cast<const typename Base::Kargs&>(kargs));
#endif
    }

#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
    // CK Tile has packed sums, sequence after sequence and head after head, and adds to this address the offset of a
    // work-group's sums in them. Together they point into the caller's tensor. In a fixed order the offset is 0: run_
    // gets 0 as the number of parts.
    CK_TILE_DEVICE static float* find_sums(const Kargs& kargs)
    {
        const int64_t sequence = blockIdx.z, head = blockIdx.y;
        const tw_fmha_tensor& sums = kargs.dq_acc;
        float* to                  = static_cast<float*>(sums.data) + head * sums.head;
        int64_t rows = kargs.seqlen_q, start = sequence * rows;
        if constexpr(Base::kIsGroupMode)
        {
            start = kargs.seqstart_q_ptr[sequence];
            rows  = kargs.seqstart_q_ptr[sequence + 1] - start;
            to += start * sums.row;
        }
        else
            to += sequence * sums.batch;
        if constexpr(Base::kIsDeterministic)
            return to + blockIdx.x * sums.part;
        else
            return to - (start * kargs.nhead_q + head * rows) * kargs.hdim_q;
    }
#endif

    // The rows of this work-group's tile of keys; every tile where one work-group computes them all.
    template <typename T>
    CK_TILE_DEVICE static void clear_tile(void* data, int64_t head, int64_t row, int start, int keys, int columns)
    {
        constexpr int tile = Base::FmhaPipeline::kN0;
        const int first    = Base::kUseQrQtrDorPipeline ? 0 : blockIdx.x * tile;
        const int rows     = Base::kUseQrQtrDorPipeline ? keys : min(keys - first, tile);
        T* to = static_cast<T*>(data) + int64_t{blockIdx.y} * head + (int64_t{start} + first) * row;
        for(int i = threadIdx.x; i < rows * columns; i += blockDim.x)
            to[i / columns * row + i % columns] = ck_tile::type_convert<T>(0.0f);
    }
};

template <typename Problem, Pipeline P>
struct DqDkDvPipeline;
template <typename Problem>
struct DqDkDvPipeline<Problem, Pipeline::kr_ktr_vr>
{
    using type = ck_tile::BlockFmhaBwdDQDKDVPipelineKRKTRVR<Problem>;
};
template <typename Problem>
struct DqDkDvPipeline<Problem, Pipeline::kr_ktr_vr_iglp>
{
    using type = ck_tile::BlockFmhaBwdDQDKDVPipelineKRKTRVRIGLP<Problem>;
};
template <typename Problem>
struct DqDkDvPipeline<Problem, Pipeline::trload_kr_ktr_vr>
{
    using type = ck_tile::BlockFmhaBwdDQDKDVPipelineTrLoadKRKTRVR<Problem>;
};
template <typename Problem>
struct DqDkDvPipeline<Problem, Pipeline::trload_qr_qtr_dor>
{
    using type = ck_tile::BlockFmhaBwdDQDKDVPipelineTrLoadQRQTRDOR<Problem>;
};

template <typename D>
struct DqDkDvTypes
{
    using T = typename D::QKV;
    // One work-group has all keys of a head, and writes the queries' gradient once.
    static constexpr bool whole_head = D::pipeline == Pipeline::trload_qr_qtr_dor;
    static constexpr bool trload     = whole_head || D::pipeline == Pipeline::trload_kr_ktr_vr;
    // Work-groups add to dq_acc atomically, unless each has its own part of it, or whole rows. Newer kernels also add
    // to the parts, and in group mode they read offsets of these.
#if defined(TILEWRIGHT_CK_FMHA_BACKWARD_WORKSPACE)
    static constexpr bool adds          = !whole_head;
    static constexpr bool reads_offsets = adds && D::deterministic && D::group_mode;
#else
    static constexpr bool adds          = !whole_head && !D::deterministic;
    static constexpr bool reads_offsets = false;
#endif
    // The launch bounds need a number.
    static constexpr int occupancy = D::blocks_per_cu == 0 ? 1 : D::blocks_per_cu;

    using Shape   = ck_tile::TileFmhaBwdShape<
        ck_tile::sequence<D::m0, D::n0, D::k0, D::k1, D::k2, D::k3, D::k4, D::hdim_q, D::hdim_v>,
        typename D::Waves0,
        typename D::Mma0,
        typename D::Waves1,
        typename D::Mma1,
        typename D::Waves0,
        typename D::Mma0,
        typename D::Waves1,
        typename D::Mma1,
        typename D::Waves2,
        typename D::Mma2,
        D::max_seqlen_q>;
    using Traits =
        ck_tile::TileFmhaBwdTraits<D::pad_hdim_q, D::pad_hdim_v, D::bias, D::bias_gradient, occupancy>;
    using Dropout = ck_tile::BlockDropoutBwd<D::dropout, D::Mma0::at(ck_tile::number<0>{}) == 32, D::store_randval>;
    using Problem = ck_tile::BlockFmhaBwdPipelineProblem<T,
                                                         T,
                                                         T,
                                                         typename D::P,
                                                         float,
                                                         float,
                                                         float,
                                                         typename D::Bias,
                                                         uint8_t,
                                                         typename D::O,
                                                         typename D::O,
                                                         float, // dq_acc takes what a whole_head pipeline writes
                                                         T,
                                                         T,
                                                         typename D::Bias,
                                                         Shape,
                                                         D::group_mode,
                                                         D::deterministic,
                                                         typename Parts<D>::Mask,
                                                         Dropout,
                                                         trload,
                                                         Traits>;
    template <typename To>
    using Epilogue = ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, To, false, false>>;

    using Pipe   = typename DqDkDvPipeline<Problem, D::pipeline>::type;
    using Kernel = DqDkDvKernel<ck_tile::FmhaBwdDQDKDVKernel<Pipe,
                                                             Epilogue<T>,
                                                             Epilogue<T>,
                                                             std::conditional_t<whole_head, Epilogue<float>, void>>>;
};

} // namespace tilewright_fmha

#endif
