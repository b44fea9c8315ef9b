// The host side of every GEMM kernel that Tilewright renders: checks, launch and the C functions of tilewright_gemm.h.
//
// A rendered kernel describes itself in a struct D:
//   name                        the kernel's slug
//   ADataType to CLayout        types and layouts of A, B and C
//   Partitioner, BasePipeline   CK Tile's mapping of work-groups to tiles, and its loop arithmetic
//   Instance<hot, tail, store>  CK Tile's kernel for one form of the loop over K and one way to store C; with CK Tile of
//                               2026 a plain Instance, which chooses both on the device, and no BasePipeline
//   num_d, blocks_per_cu, batched, preshuffle, permute_n, split_k, persistent, block_m, block_n, mma_n, mma_k
//                               fields of its config
//   unlooped                    a number of steps that has no hot loop although CK Tile says so; 0 = none; not in 2026
//   least_steps                 fewer steps along K than this are computed wrongly
//   unbounded_add               atomic adds are not checked against the edge of C
//   add_bytes                   what one atomic add takes of C, at a multiple of itself
#ifndef TILEWRIGHT_GEMM_LAUNCH_HPP
#define TILEWRIGHT_GEMM_LAUNCH_HPP

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tilewright_call.hpp"
#include "tilewright_ck_api.hpp"
#include "tilewright_gemm.h"

namespace tilewright_gemm {

using tilewright_call::fail;

template <typename D>
struct Launcher
{
#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
    // The part of K that one split works on: whole mma tiles, one more for the first splits, and the rest for the last.
    static int64_t size_of(const tw_gemm_args& args, int64_t i)
    {
        const int64_t tiles = args.k / D::mma_k;
        const bool one_more = i < tiles % args.k_batch;
        return (tiles / args.k_batch + one_more) * D::mma_k + (i + 1 == args.k_batch ? args.k % D::mma_k : 0);
    }

    static int check_splits(const tw_gemm_args& args)
    {
        // There are up to three sizes: of the first, of the last, and of the one before the last.
        for(const int64_t i : {int64_t{0}, std::max<int64_t>(args.k_batch - 2, 0), args.k_batch - 1})
        {
            const int64_t size = size_of(args, i);
            if(size < 1)
                return fail(TW_UNSUPPORTED, "K = %lld leaves nothing for one of %lld splits", args.k, args.k_batch);
            const int64_t steps = D::Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(size));
            if(steps < D::least_steps)
                return fail(TW_UNSUPPORTED, "K = %lld takes fewer than %lld steps", args.k, D::least_steps);
        }
        return TW_OK;
    }

    // Calls `act` with the instance, which computes all problems.
    template <typename Act>
    static int with_instance(const tw_gemm_args&, const Act& act)
    {
        return act(typename D::Instance{});
    }

    // Names the instance: all that the device pass needs of the host code.
    static void name_instances() { name_instance<typename D::Instance>(); }
#else
    // The part of K that one split works on, and the form of its loop.
    struct Split
    {
        int64_t size;
        int64_t steps;
        bool hot_loop;
        ck_tile::TailNumber tail;
    };

    static Split split_of(const tw_gemm_args& args, int64_t i)
    {
        const int64_t step  = args.k_batch * D::mma_k;
        const int64_t whole = (args.k + step - 1) / step * D::mma_k;
        const int64_t size  = i + 1 < args.k_batch ? whole : args.k - whole * (args.k_batch - 1);
        const auto steps    = D::Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(size));
        const bool hot_loop = steps != D::unlooped && D::BasePipeline::BlockHasHotloop(steps);
        return {size, steps, hot_loop, D::BasePipeline::GetBlockLoopTailNum(steps)};
    }

    // All splits run one compiled loop body, so they must agree in its form.
    static int check_splits(const tw_gemm_args& args)
    {
        const Split first = split_of(args, 0);
        const Split last  = split_of(args, args.k_batch - 1);
        if(last.size < 1)
            return fail(TW_UNSUPPORTED, "K = %lld leaves nothing for the last of %lld splits", args.k, args.k_batch);
        if(first.hot_loop != last.hot_loop || first.tail != last.tail)
            return fail(TW_UNSUPPORTED, "K = %lld splits unevenly into %lld parts", args.k, args.k_batch);
        if(first.steps < D::least_steps || last.steps < D::least_steps)
            return fail(TW_UNSUPPORTED, "K = %lld takes fewer than %lld steps", args.k, D::least_steps);
        return TW_OK;
    }

    // Calls `act` with the one instance that computes this problem.
    template <typename Act>
    static int with_instance(const tw_gemm_args& args, const Act& act)
    {
        using Store      = ck_tile::memory_operation_enum;
        int status       = TW_OK;
        const Split part = split_of(args, 0);
        D::BasePipeline::TailHandler(
            [&](auto hot_loop, auto tail) {
                if constexpr(D::split_k)
                    if(args.k_batch > 1)
                    {
                        status = act(typename D::template Instance<hot_loop.value, tail.value, Store::atomic_add>{});
                        return;
                    }
                status = act(typename D::template Instance<hot_loop.value, tail.value, Store::set>{});
            },
            part.hot_loop, part.tail);
        return status;
    }

    // Names every instance that with_instance can choose, in the same order: all that the device pass needs of the host code.
    static void name_instances()
    {
        using Store = ck_tile::memory_operation_enum;
        D::BasePipeline::TailHandler(
            [](auto hot_loop, auto tail) {
                if constexpr(D::split_k)
                    name_instance<typename D::template Instance<hot_loop.value, tail.value, Store::atomic_add>>();
                name_instance<typename D::template Instance<hot_loop.value, tail.value, Store::set>>();
            },
            true, ck_tile::TailNumber::Full);
    }
#endif

    // Elements from the first of a matrix to behind its last.
    template <typename Layout>
    static int64_t extent(int64_t rows, int64_t columns, int64_t stride)
    {
        if constexpr(std::is_same_v<Layout, ck_tile::tensor_layout::gemm::RowMajor>)
            return (rows - 1) * stride + columns;
        else
            return (columns - 1) * stride + rows;
    }

    // CK Tile keeps element offsets in 32 bits with a sign, and bytes in 32 bits without.
    template <typename T>
    static constexpr int64_t reach(int64_t bytes)
    {
        return std::min<int64_t>(INT32_MAX, bytes / sizeof(T) * ck_tile::numeric_traits<T>::PackedSize);
    }

    static int check_reach(const tw_gemm_args& args)
    {
        for(const int64_t value : {args.m, args.n, args.k, args.k_batch, args.batch, args.stride_a, args.stride_b,
                                   args.stride_c})
            if(value > INT32_MAX)
                return fail(TW_UNSUPPORTED, "a size, count or stride is %lld, CK Tile takes up to %lld", value,
                            INT32_MAX);
        constexpr int64_t most_a = reach<typename D::ADataType>(UINT32_MAX);
        constexpr int64_t most_b = reach<typename D::BDataType>(UINT32_MAX);
        const int64_t a          = extent<typename D::ALayout>(args.m, args.k, args.stride_a);
        const int64_t b          = extent<typename D::BLayout>(args.k, args.n, args.stride_b);
        if(a > most_a)
            return fail(TW_UNSUPPORTED, "A spans %lld elements, CK Tile addresses up to %lld", a, most_a);
        if(b > most_b)
            return fail(TW_UNSUPPORTED, "B spans %lld elements, CK Tile addresses up to %lld", b, most_b);
        // A store beyond the edge of C is kept out of it by 2^31 bytes added to its offset, so that C and the tiles
        // over its edge must not reach farther than that.
        const int64_t tiles_m = (args.m + D::block_m - 1) / D::block_m * D::block_m;
        const int64_t tiles_n = (args.n + D::block_n - 1) / D::block_n * D::block_n;
        const bool whole      = tiles_m == args.m && tiles_n == args.n;
        const int64_t most_c  = reach<typename D::CDataType>(whole ? UINT32_MAX : int64_t{1} << 31);
        const int64_t c       = extent<typename D::CLayout>(tiles_m, tiles_n, args.stride_c);
        if(c > most_c)
            return fail(TW_UNSUPPORTED, "C and the tiles over its edge span %lld elements, CK Tile addresses up "
                        "to %lld", c, most_c);
        for(int i = 0; i < D::num_d; ++i)
            if(args.stride_d[i] > INT32_MAX || extent<typename D::CLayout>(args.m, args.n, args.stride_d[i]) > most_c)
                return fail(TW_UNSUPPORTED, "d[%lld] spans more than the %lld elements that CK Tile addresses", i,
                            most_c);
        if constexpr(D::batched)
            for(const int64_t stride : {args.batch_stride_a, args.batch_stride_b, args.batch_stride_c})
                if(stride > INT32_MAX || stride > UINT32_MAX / std::max<int64_t>(1, args.batch - 1))
                    return fail(TW_UNSUPPORTED, "the last matrix of a batch begins after %lld x %lld elements, CK Tile "
                                "computes this in 32 bits", args.batch - 1, stride);
        return TW_OK;
    }

    static int check(const tw_gemm_args* args)
    {
        if(args == nullptr || args->size < sizeof(tw_gemm_args))
            return fail(TW_BAD_ARGS, "args is null or of an older ABI: %lld bytes, need %lld",
                        args == nullptr ? 0 : static_cast<long long>(args->size), sizeof(tw_gemm_args));
        if(args->m < 1 || args->n < 1 || args->k < 1 || args->k_batch < 1 || args->batch < 1)
            return fail(TW_BAD_ARGS, "m, n, k, k_batch and batch must be at least 1");
        if(const int status = check_reach(*args); status != TW_OK)
            return status;
        if(!D::split_k && args->k_batch > 1)
            return fail(TW_UNSUPPORTED, "k_batch is %lld but this kernel was built without split-K", args->k_batch);
        if(!D::batched && args->batch > 1)
            return fail(TW_UNSUPPORTED, "batch is %lld but this kernel is not batched", args->batch);
        if(const int status = check_splits(*args); status != TW_OK)
            return status;
        if(D::preshuffle && (args->n % D::mma_n != 0 || args->k % D::mma_k != 0))
            return fail(TW_UNSUPPORTED, "a preshuffled B has whole matrix tiles, not n x k = %lld x %lld", args->n, args->k);
        if(D::preshuffle && args->stride_b != args->k)
            return fail(TW_UNSUPPORTED, "stride_b is %lld, but a preshuffled B has no gaps: k = %lld",
                        args->stride_b, args->k);
        if(D::permute_n && args->n % D::block_n != 0)
            return fail(TW_UNSUPPORTED, "N = %lld is not a multiple of block n %lld, and permute_n deals out whole "
                        "blocks of columns", args->n, D::block_n);
        if(D::unbounded_add && args->k_batch > 1 && args->m % D::block_m != 0)
            return fail(TW_UNSUPPORTED, "M = %lld is not a multiple of block m %lld, and this kernel's atomic adds "
                        "do not stop at the edge of C", args->m, D::block_m);
        return args->k_batch > 1 ? check_added_strides(*args) : TW_OK;
    }

    // The atomic adds of a split K take several elements of C at once, at a multiple of their size.
    static int check_added_strides(const tw_gemm_args& args)
    {
        constexpr int64_t elements = D::add_bytes / sizeof(typename D::CDataType);
        constexpr bool rows = std::is_same_v<typename D::CLayout, ck_tile::tensor_layout::gemm::RowMajor>;
        if((rows ? args.m : args.n) > 1 && args.stride_c % elements != 0)
            return fail(TW_UNSUPPORTED, "stride_c is %lld, it must be a multiple of the %lld elements that an atomic "
                        "add takes", args.stride_c, elements);
        if(args.batch > 1 && args.batch_stride_c % elements != 0)
            return fail(TW_UNSUPPORTED, "batch_stride_c is %lld, it must be a multiple of the %lld elements that an "
                        "atomic add takes", args.batch_stride_c, elements);
        return TW_OK;
    }

    template <std::size_t... I>
    static auto host_args(const tw_gemm_args& args, std::index_sequence<I...>)
    {
        const auto i = [](int64_t value) { return static_cast<ck_tile::index_t>(value); };
        if constexpr(D::batched)
            return ck_tile::BatchedGemmHostArgs{
                args.a, args.b, args.c, i(args.k_batch), i(args.m), i(args.n), i(args.k), i(args.stride_a),
                i(args.stride_b), i(args.stride_c), i(args.batch_stride_a), i(args.batch_stride_b),
                i(args.batch_stride_c), i(args.batch)};
        else if constexpr(D::num_d > 0)
            return ck_tile::GemmMultiDHostArgs<D::num_d>{
                args.a, args.b, {args.d[I]...}, args.c, i(args.k_batch), i(args.m), i(args.n), i(args.k),
                i(args.stride_a), i(args.stride_b), {i(args.stride_d[I])...}, i(args.stride_c)};
        else
            return ck_tile::GemmHostArgs{args.a, args.b, args.c, i(args.k_batch), i(args.m), i(args.n), i(args.k),
                                         i(args.stride_a), i(args.stride_b), i(args.stride_c)};
    }

    static auto host_args(const tw_gemm_args& args) { return host_args(args, std::make_index_sequence<D::num_d>{}); }

    template <typename K>
    static void name_instance()
    {
        using Args = decltype(K::MakeKernelArgs(host_args(std::declval<const tw_gemm_args&>())));
        static_cast<void>(&ck_tile::kentry<D::blocks_per_cu, K, Args>);
    }

    static int supports(const tw_gemm_args* args)
    {
        if(const int status = check(args); status != TW_OK)
            return status;
        return with_instance(*args, [&](auto instance) -> int {
            using K = decltype(instance);
            if(!K::IsSupportedArgument(K::MakeKernelArgs(host_args(*args))))
                return fail(TW_UNSUPPORTED, "CK Tile's IsSupportedArgument refuses these sizes "
                            "(CK_TILE_LOGGING=1 tells why)");
            return TW_OK;
        });
    }

    // None of these kernels needs a workspace.
    static int workspace_size(const tw_gemm_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return check(args);
    }

    static int run(const tw_gemm_args* args, hipStream_t stream)
    {
        if(const int status = supports(args); status != TW_OK)
            return status;
        if(args->a == nullptr || args->b == nullptr || args->c == nullptr)
            return fail(TW_BAD_ARGS, "a, b and c must not be null");
        for(int i = 0; i < D::num_d; ++i)
            if(args->d[i] == nullptr)
                return fail(TW_BAD_ARGS, "d[%lld] is null, this kernel reads %lld D tensors", i, D::num_d);
        if(args->k_batch > 1)
        {
            if(const auto beyond = reinterpret_cast<uintptr_t>(args->c) % D::add_bytes; beyond != 0)
                return fail(TW_UNSUPPORTED, "c begins %lld bytes past a multiple of the %lld bytes that an atomic add "
                            "takes; align it, or use k_batch 1", beyond, D::add_bytes);
            if(const int status = clear(*args, stream); status != TW_OK)
                return status;
        }
        return with_instance(*args, [&](auto instance) { return launch<decltype(instance)>(*args, stream); });
    }

    // Splits are added atomically, so the sum must start from zero.
    static int clear(const tw_gemm_args& args, hipStream_t stream)
    {
        using T             = typename D::CDataType;
        constexpr bool rows = std::is_same_v<typename D::CLayout, ck_tile::tensor_layout::gemm::RowMajor>;
        const size_t lines  = rows ? args.m : args.n;
        const size_t width  = (rows ? args.n : args.m) * sizeof(T);
        for(int64_t i = 0; i < args.batch; ++i)
        {
            auto* c          = static_cast<T*>(args.c) + i * args.batch_stride_c;
            const auto error = hipMemset2DAsync(c, args.stride_c * sizeof(T), 0, width, lines, stream);
            if(error != hipSuccess)
                return fail(TW_HIP_ERROR, "hipMemset2DAsync failed with HIP error %lld", error);
        }
        return TW_OK;
    }

    template <typename K>
    static int launch(const tw_gemm_args& args, hipStream_t stream)
    {
        const ck_tile::stream_config config{stream};
        auto arguments = K::MakeKernelArgs(host_args(args));
        dim3 grid;
        if constexpr(D::persistent)
        {
            // As many work-groups as the device holds at once, for this very kernel and its launch bounds.
            int resident     = 0;
            const auto entry = ck_tile::kentry<D::blocks_per_cu, K, decltype(arguments)>;
            const auto error = hipOccupancyMaxActiveBlocksPerMultiprocessor(&resident, entry, K::BlockSize().x, 0);
            if(error != hipSuccess)
                return fail(TW_HIP_ERROR, "asking for the occupancy failed with HIP error %lld", error);
            grid = dim3(ck_tile::get_available_compute_units(config) * resident, 1, 1);
        }
        else if constexpr(D::batched)
            grid = K::GridSize(args.m, args.n, args.k_batch, args.batch);
        else
            grid = K::GridSize(args.m, args.n, args.k_batch);
        ck_tile::make_kernel<D::blocks_per_cu>(K{}, grid, K::BlockSize(), 0, arguments)(config);
        if(const auto error = hipGetLastError(); error != hipSuccess)
            return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
        return TW_OK;
    }
};

} // namespace tilewright_gemm

#define TILEWRIGHT_GEMM_EXPORT(symbol) TILEWRIGHT_EXPORT(symbol, tilewright_gemm::Launcher, tw_gemm_args)

#endif
