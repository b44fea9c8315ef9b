// The host side of every GEMM kernel with scales that Tilewright renders: checks, launch and the C functions of
// tilewright_gemm_quant.h.
//
// A rendered kernel describes itself in a struct D:
//   name                       the kernel's slug
//   ADataType to CLayout       types and layouts of A, B and C
//   Partitioner, BasePipeline  CK Tile's mapping of work-groups to tiles, and its loop arithmetic
//   Instance<hot, tail>        CK Tile's kernel for one form of the loop over K; with CK Tile of 2026 a plain Instance,
//                              which chooses the form on the device, and no BasePipeline
//   block_m, block_n, blocks_per_cu
//                              fields of its config
//   threads                    threads of a work-group
//   vector_a, vector_b         elements that a lane loads at once
//   least_steps                fewer steps along K than this are computed wrongly
#ifndef TILEWRIGHT_GEMM_QUANT_LAUNCH_HPP
#define TILEWRIGHT_GEMM_QUANT_LAUNCH_HPP

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tilewright_call.hpp"
#include "tilewright_ck_api.hpp"
#include "tilewright_gemm_quant.h"
#include "tilewright_scaled_gemm.hpp"

namespace tilewright_gemm_quant {

using tilewright_call::fail;

template <typename D>
struct Launcher
{
    static auto count_steps(const tw_gemm_quant_args& args)
    {
        return D::Partitioner::GetLoopNum(static_cast<ck_tile::index_t>(args.k));
    }

    template <typename K>
    static void name_instance()
    {
        static_cast<void>(&ck_tile::kentry<D::blocks_per_cu, K, ck_tile::QuantGemmKernelArgs>);
    }

#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
    // Calls `act` with the instance, which computes all problems.
    template <typename Act>
    static int with_instance(const tw_gemm_quant_args&, const Act& act)
    {
        return act(typename D::Instance{});
    }

    // Names the instance: all that the device pass needs of the host code.
    static void name_instances() { name_instance<typename D::Instance>(); }
#else
    // Calls `act` with the one instance that computes this problem.
    template <typename Act>
    static int with_instance(const tw_gemm_quant_args& args, const Act& act)
    {
        int status       = TW_OK;
        const auto steps = count_steps(args);
        D::BasePipeline::TailHandler(
            [&](auto hot_loop, auto tail) { status = act(typename D::template Instance<hot_loop.value, tail.value>{}); },
            D::BasePipeline::BlockHasHotloop(steps), D::BasePipeline::GetBlockLoopTailNum(steps));
        return status;
    }

    // Names every instance that with_instance can choose: all that the device pass needs of the host code.
    static void name_instances()
    {
        D::BasePipeline::TailHandler(
            [](auto hot_loop, auto tail) { name_instance<typename D::template Instance<hot_loop.value, tail.value>>(); },
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

#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
    static constexpr bool host_has_waves = true;
#else
    // On the host, waves have 64 lanes for CK Tile. If a tile then has less than one element for each lane, it takes
    // the widest vectors, and refuses sizes that kernels with waves of 32 lanes compute.
    static constexpr bool host_has_waves = D::threads == D::Shape::NumWarps * 64;
#endif

    // The conditions of CK Tile's IsSupportedArgument that do not depend on vectors of A and B.
    static bool is_tiled(const tw_gemm_quant_args& args)
    {
        constexpr bool rows_a = std::is_same_v<typename D::ALayout, ck_tile::tensor_layout::gemm::RowMajor>;
        constexpr bool rows_b = std::is_same_v<typename D::BLayout, ck_tile::tensor_layout::gemm::RowMajor>;
        const bool whole_m    = D::Traits::kPadM || args.m % D::block_m == 0;
        const bool whole_n    = D::Traits::kPadN || args.n % D::block_n == 0;
        const bool whole_k    = D::Traits::kPadK || args.k % D::Shape::kK == 0;
        return (rows_a || whole_m) && whole_n && ((!rows_a && rows_b) || whole_k) &&
               args.n % D::Epilogue::GetVectorSizeC() == 0;
    }

    // CK Tile keeps element offsets in 32 bits with a sign, and bytes in 32 bits without.
    template <typename T>
    static constexpr int64_t reach(int64_t bytes)
    {
        return std::min<int64_t>(INT32_MAX, bytes / sizeof(T));
    }

    static int check_reach(const tw_gemm_quant_args& args)
    {
        for(const int64_t value : {args.m, args.n, args.k, args.stride_a, args.stride_b, args.stride_c})
            if(value > INT32_MAX)
                return fail(TW_UNSUPPORTED, "a size or stride is %lld, CK Tile takes up to %lld", value, INT32_MAX);
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
        return TW_OK;
    }

    static int check(const tw_gemm_quant_args* args)
    {
        if(args == nullptr || args->size < sizeof(tw_gemm_quant_args))
            return fail(TW_BAD_ARGS, "args is null or of an older ABI: %lld bytes, need %lld",
                        args == nullptr ? 0 : static_cast<long long>(args->size), sizeof(tw_gemm_quant_args));
        if(args->m < 1 || args->n < 1 || args->k < 1)
            return fail(TW_BAD_ARGS, "m, n and k must be at least 1");
        if(const int status = check_reach(*args); status != TW_OK)
            return status;
        // CK Tile checks vectors, too, but on the host for waves of 64 lanes, whose vectors may be narrower.
        constexpr bool rows_a = std::is_same_v<typename D::ALayout, ck_tile::tensor_layout::gemm::RowMajor>;
        constexpr bool rows_b = std::is_same_v<typename D::BLayout, ck_tile::tensor_layout::gemm::RowMajor>;
        if((rows_a ? args->k : args->m) % D::vector_a != 0)
            return fail(TW_UNSUPPORTED, "a line of A is not a multiple of its vectors of %lld elements", D::vector_a);
        if((rows_b ? args->n : args->k) % D::vector_b != 0)
            return fail(TW_UNSUPPORTED, "a line of B is not a multiple of its vectors of %lld elements", D::vector_b);
        if(count_steps(*args) < D::least_steps)
            return fail(TW_UNSUPPORTED, "K = %lld takes fewer than %lld steps", args->k, D::least_steps);
        return TW_OK;
    }

    // Scales have no groups along K, hence none of the numbers and strides of groups.
    static auto host_args(const tw_gemm_quant_args& args)
    {
        const auto i = [](int64_t value) { return static_cast<ck_tile::index_t>(value); };
        return ck_tile::QuantGemmHostArgs{
            args.a, args.b, args.c, args.scale_a, args.scale_b, 1, i(args.m), i(args.n), i(args.k), 1, 1,
            i(args.stride_a), i(args.stride_b), i(args.stride_c), 1, 1};
    }

    static int supports(const tw_gemm_quant_args* args)
    {
        if(const int status = check(args); status != TW_OK)
            return status;
        if constexpr(!host_has_waves)
            return is_tiled(*args) ? TW_OK : fail(TW_UNSUPPORTED, "a size is not a multiple of the block or of C's "
                                                  "vectors, and the kernel does not pad it");
        return with_instance(*args, [&](auto instance) -> int {
            using K = decltype(instance);
            if(!K::IsSupportedArgument(K::MakeKernelArgs(host_args(*args))))
                return fail(TW_UNSUPPORTED, "CK Tile's IsSupportedArgument refuses these sizes "
                            "(CK_TILE_LOGGING=1 tells why)");
            return TW_OK;
        });
    }

    // None of these kernels needs a workspace.
    static int workspace_size(const tw_gemm_quant_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return check(args);
    }

    static int run(const tw_gemm_quant_args* args, hipStream_t stream)
    {
        if(const int status = supports(args); status != TW_OK)
            return status;
        for(const void* tensor : {args->a, args->b, args->scale_a, args->scale_b, static_cast<const void*>(args->c)})
            if(tensor == nullptr)
                return fail(TW_BAD_ARGS, "a, b, scale_a, scale_b and c must not be null");
        return with_instance(*args, [&](auto instance) { return launch<decltype(instance)>(*args, stream); });
    }

    template <typename K>
    static int launch(const tw_gemm_quant_args& args, hipStream_t stream)
    {
        const auto arguments = K::MakeKernelArgs(host_args(args));
        const dim3 grid      = K::GridSize(arguments.M, arguments.N, 1);
        // Not CK Tile's BlockSize: the host assumes waves of 64 lanes, so that it is twice the number on RDNA.
        ck_tile::make_kernel<D::blocks_per_cu>(K{}, grid, dim3(D::threads), 0, arguments)(
            ck_tile::stream_config{stream});
        if(const auto error = hipGetLastError(); error != hipSuccess)
            return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
        return TW_OK;
    }
};

} // namespace tilewright_gemm_quant

#define TILEWRIGHT_GEMM_QUANT_EXPORT(symbol) \
    TILEWRIGHT_EXPORT(symbol, tilewright_gemm_quant::Launcher, tw_gemm_quant_args)

#endif
