// The host side of every grouped GEMM kernel that Tilewright renders: checks, launches and the C functions of
// tilewright_grouped_gemm.h. Sizes of groups stay on the device: a small kernel writes CK Tile's arguments of each group
// to the workspace, and the persistent GEMM reads them there.
//
// A rendered kernel describes itself in a struct D:
//   name                       the kernel's slug
//   ADataType to CLayout       types and layouts of A, B and C
//   Partitioner, Traits        CK Tile's mapping of work-groups to tiles, and its compile-time options
//   Group                      CK Tile's arguments of one group: PlainGroup, or ScaledGroup of
//                              tilewright_grouped_gemm_scales.hpp
//   Instance                   CK Tile's kernel
//   block_m, block_n, block_k, blocks_per_cu
//                              fields of its config
//   threads                    threads of a work-group
//   vector_a, vector_b, vector_c
//                              elements that a lane loads or stores at once
#ifndef TILEWRIGHT_GROUPED_GEMM_LAUNCH_HPP
#define TILEWRIGHT_GROUPED_GEMM_LAUNCH_HPP

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tilewright_call.hpp"
#include "tilewright_ck_api.hpp"
#include "tilewright_grouped_gemm.h"
#include "tilewright_scaled_gemm.hpp"

namespace tilewright_grouped_gemm {

using tilewright_call::fail;

// The values of the argument `ragged`.
enum Ragged : int64_t
{
    ragged_m    = 0,
    ragged_n    = 1,
    ragged_k    = 2,
    ragged_none = 3,
};

#ifndef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PLAIN
// Until 2025, the grouped kernel has no barrier between the tiles of a work-group: a fast wave would overwrite the LDS
// that others still read for the tile before.
template <typename Pipeline>
struct StartTogether : Pipeline
{
    template <typename As, typename Bs>
    CK_TILE_DEVICE auto operator()(const As& as, const Bs& bs, ck_tile::index_t steps, bool hot_loop,
                                   ck_tile::TailNumber tail, void* lds) const
    {
        ck_tile::block_sync_lds();
        return Pipeline::operator()(as, bs, steps, hot_loop, tail, lds);
    }
};
#endif

// What PrepareGroups reads: addresses, sizes and strides as in the C struct, and the elements between the matrices of
// neighbouring groups. Scales are null for kernels without them.
struct GroupedCall
{
    const void* a;
    const void* b;
    const float* scale_a;
    const float* scale_b;
    const int32_t* offs;
    void* c;
    void* groups;
    int64_t step_a, step_b, step_c;
    int32_t m, n, k;
    int32_t stride_a, stride_b, stride_c;
    int32_t ragged;
    int32_t count; // of groups
};

// The matrices of one group.
template <typename A, typename B, typename C>
struct Matrices
{
    const A* a;
    const B* b;
    C* c;
    int32_t m, n, k;
};

// CK Tile's arguments of one group, of kernels without scales.
struct PlainGroup
{
    using Arguments                  = ck_tile::UniversalGemmKernelArgs<1, 1, 0>;
    using Entry                      = ck_tile::GemmTransKernelArg<0>;
    static constexpr bool has_scales = false;

    template <typename M>
    CK_TILE_DEVICE static Arguments make(const GroupedCall& call, const M& of, int64_t, int64_t)
    {
        return {{of.a}, {of.b}, {}, of.c, of.m, of.n, of.k, {call.stride_a}, {call.stride_b}, {}, call.stride_c, 1};
    }
};

// Writes the arguments of group blockIdx.x, and clears what the GEMM has no tiles for: the C of a group without terms,
// and the rows or columns behind the last group, which all work-groups share.
template <typename D>
struct PrepareGroups
{
    static constexpr ck_tile::index_t kBlockSize = 256;

    CK_TILE_DEVICE void operator()(GroupedCall call) const
    {
        const int32_t group = static_cast<int32_t>(blockIdx.x);
        const bool by_m = call.ragged == ragged_m, by_n = call.ragged == ragged_n, by_k = call.ragged == ragged_k;
        // Conditional expressions, not branches: clang 22 loses values where several branches meet (see docs/findings.md).
        // Ends that decrease or lie outside must not lead to accesses outside of the matrices.
        const int32_t total = by_m ? call.m : by_n ? call.n : by_k ? call.k : 0;
        const int32_t first = clamp(total == 0 || group == 0 ? 0 : call.offs[group - 1], 0, total);
        const int32_t size  = clamp(total == 0 ? 0 : call.offs[group], first, total) - first;
        const int32_t last  = clamp(total == 0 ? 0 : call.offs[call.count - 1], 0, total);

        const int64_t begin_a = by_m || by_k ? int64_t{first} * call.stride_a : group * call.step_a;
        const int64_t begin_b = by_n || by_k ? int64_t{first} * call.stride_b : group * call.step_b;
        const int64_t begin_c = by_m ? int64_t{first} * call.stride_c : by_n ? int64_t{first} : group * call.step_c;
        const int32_t n       = by_n ? size : call.n;
        const int32_t k       = by_k ? size : call.k;
        const bool empty      = k == 0;
        const int32_t m       = by_m ? size : empty ? 0 : call.m;
        if(empty)
            clear(call, begin_c, 0, 0, 1);
        else if(by_m || by_n)
            clear(call, 0, by_m ? last + group : group, by_n ? last : 0, call.count);
        if(threadIdx.x != 0)
            return;
        // Scales of a ragged dimension are those of all groups, the others one line for each group.
        const int64_t scale_a = by_m ? int64_t{first} : int64_t{group} * call.m;
        const int64_t scale_b = by_n ? int64_t{first} : int64_t{group} * call.n;
        using Group           = typename D::Group;
        const Matrices<typename D::ADataType, typename D::BDataType, typename D::CDataType> matrices{
            static_cast<const typename D::ADataType*>(call.a) + begin_a,
            static_cast<const typename D::BDataType*>(call.b) + begin_b,
            static_cast<typename D::CDataType*>(call.c) + begin_c, m, n, k};
        const typename Group::Arguments made = Group::make(call, matrices, scale_a, scale_b);
        // Its members are constant, and its constructors are for the host.
        auto* entry = static_cast<typename Group::Entry*>(call.groups) + group;
        __builtin_memcpy(static_cast<void*>(&entry->group_karg), &made, sizeof(made));
        // Only kernels that are not persistent read these.
        entry->block_start = 0;
        entry->block_end   = 0;
    }

    CK_TILE_DEVICE static int32_t clamp(int32_t value, int32_t least, int32_t most)
    {
        return value < least ? least : value > most ? most : value;
    }

    // Clears the rows row, row + step, … of the matrix at `begin`, from a column on.
    CK_TILE_DEVICE static void clear(const GroupedCall& call, int64_t begin, int64_t row, int32_t first, int32_t step)
    {
        for(; row < call.m; row += step)
        {
            auto* line = static_cast<typename D::CDataType*>(call.c) + begin + row * call.stride_c;
            for(int32_t column = first + static_cast<int32_t>(threadIdx.x); column < call.n; column += kBlockSize)
                line[column] = ck_tile::type_convert<typename D::CDataType>(0.0f);
        }
    }
};

// Not CK Tile's entry point: it is for the kernels that compute the op.
template <typename D>
__global__ void prepare_groups(GroupedCall call)
{
    PrepareGroups<D>{}(call);
}

template <typename D>
struct Launcher
{
    using K       = typename D::Instance;
    using Entries = decltype(ck_tile::cast_pointer_to_constant_address_space(std::declval<const void*>()));

    static constexpr bool rows_a = std::is_same_v<typename D::ALayout, ck_tile::tensor_layout::gemm::RowMajor>;
    static constexpr bool rows_b = std::is_same_v<typename D::BLayout, ck_tile::tensor_layout::gemm::RowMajor>;
    static constexpr int64_t most_tiles = int64_t{1} << 30;

    // Names the kernels: all that the device pass needs of the host code.
    static void name_instances()
    {
        static_cast<void>(&ck_tile::kentry<D::blocks_per_cu, K, Entries, ck_tile::index_t>);
        static_cast<void>(&prepare_groups<D>);
    }

    // CK Tile keeps element offsets in 32 bits with a sign, and bytes in 32 bits without.
    template <typename T>
    static constexpr int64_t reach(int64_t bytes)
    {
        return std::min<int64_t>(INT32_MAX, bytes / sizeof(T));
    }

    static int64_t extent(bool by_rows, int64_t rows, int64_t columns, int64_t stride)
    {
        return by_rows ? (rows - 1) * stride + columns : (columns - 1) * stride + rows;
    }

    static int check_reach(const tw_grouped_gemm_args& args)
    {
        for(const int64_t value : {args.m, args.n, args.k, args.stride_a, args.stride_b, args.stride_c})
            if(value > INT32_MAX)
                return fail(TW_UNSUPPORTED, "a size or stride is %lld, CK Tile takes up to %lld", value, INT32_MAX);
        constexpr int64_t most_a = reach<typename D::ADataType>(UINT32_MAX);
        constexpr int64_t most_b = reach<typename D::BDataType>(UINT32_MAX);
        const int64_t a          = extent(rows_a, args.m, args.k, args.stride_a);
        const int64_t b          = extent(rows_b, args.k, args.n, args.stride_b);
        if(a > most_a)
            return fail(TW_UNSUPPORTED, "A spans %lld elements, CK Tile addresses up to %lld", a, most_a);
        if(b > most_b)
            return fail(TW_UNSUPPORTED, "B spans %lld elements, CK Tile addresses up to %lld", b, most_b);
        // A store beyond the edge of C is kept out of it by 2^31 bytes added to its offset, so that C and the tiles
        // over its edge must not reach farther than that. A ragged C has an edge wherever a group ends.
        constexpr int64_t edge = int64_t{1} << 31;
        const int64_t tiles_m  = (args.m + D::block_m - 1) / D::block_m * D::block_m;
        const int64_t tiles_n  = (args.n + D::block_n - 1) / D::block_n * D::block_n;
        const bool whole       = tiles_m == args.m && tiles_n == args.n;
        const int64_t most_c   = reach<typename D::CDataType>(whole ? UINT32_MAX : edge);
        const int64_t c        = extent(true, tiles_m, tiles_n, args.stride_c);
        if(c > most_c)
            return fail(TW_UNSUPPORTED, "C and the tiles over its edge span %lld elements, CK Tile addresses up "
                        "to %lld", c, most_c);
        const int64_t ragged_c = (args.m + D::block_m) * args.stride_c + D::block_n;
        if((args.ragged == ragged_m || args.ragged == ragged_n) &&
           ragged_c > edge / static_cast<int64_t>(sizeof(typename D::CDataType)))
            return fail(TW_UNSUPPORTED, "C and one more tile span %lld elements, CK Tile addresses up to %lld", ragged_c,
                        edge / static_cast<int64_t>(sizeof(typename D::CDataType)));
        return TW_OK;
    }

    // The most tiles that the groups can have, whatever their sizes are.
    static int64_t count_tiles(const tw_grouped_gemm_args& args)
    {
        const int64_t rows    = (args.m + D::block_m - 1) / D::block_m;
        const int64_t columns = (args.n + D::block_n - 1) / D::block_n;
        if(args.ragged == ragged_m)
            return (args.m / D::block_m + args.groups) * columns;
        if(args.ragged == ragged_n)
            return rows * (args.n / D::block_n + args.groups);
        return rows * columns * args.groups;
    }

    static int check(const tw_grouped_gemm_args* args)
    {
        if(args == nullptr || args->size < sizeof(tw_grouped_gemm_args))
            return fail(TW_BAD_ARGS, "args is null or of an older ABI: %lld bytes, need %lld",
                        args == nullptr ? 0 : static_cast<long long>(args->size), sizeof(tw_grouped_gemm_args));
        if(args->m < 1 || args->n < 1 || args->k < 1 || args->groups < 1)
            return fail(TW_BAD_ARGS, "m, n, k and groups must be at least 1");
        if(args->ragged < ragged_m || args->ragged > ragged_none)
            return fail(TW_BAD_ARGS, "ragged is %lld, must be 0 to 3", args->ragged);
        if(const int status = check_reach(*args); status != TW_OK)
            return status;
        if(args->groups > most_tiles || count_tiles(*args) > most_tiles)
            return fail(TW_UNSUPPORTED, "the groups may have more than %lld tiles", most_tiles);
        return TW_OK;
    }

    static int supports(const tw_grouped_gemm_args* args)
    {
        if(const int status = check(args); status != TW_OK)
            return status;
        if((args->ragged == ragged_m && !rows_a) || (args->ragged == ragged_n && rows_b) ||
           (args->ragged == ragged_k && (rows_a || !rows_b)))
            return fail(TW_UNSUPPORTED, "the ragged dimension is contiguous in A or B");
        if(args->ragged == ragged_n && (!D::Traits::kPadN || D::vector_c != 1))
            return fail(TW_UNSUPPORTED, "ragged n needs pad_n and the epilogue default");
        // The conditions of CK Tile's IsSupportedArgument, which needs the sizes of groups on the host. It also
        // computes vectors for waves of 64 lanes, which may be narrower than those of 32.
        if((!rows_a && !D::Traits::kPadM && args->m % D::block_m != 0) ||
           (!D::Traits::kPadN && args->n % D::block_n != 0) ||
           ((rows_a || !rows_b) && !D::Traits::kPadK && args->k % D::block_k != 0))
            return fail(TW_UNSUPPORTED, "a size is not a multiple of the block, and the kernel does not pad it");
        if((rows_a ? args->k : args->m) % D::vector_a != 0)
            return fail(TW_UNSUPPORTED, "a line of A is not a multiple of its vectors of %lld elements", D::vector_a);
        if((rows_b ? args->n : args->k) % D::vector_b != 0)
            return fail(TW_UNSUPPORTED, "a line of B is not a multiple of its vectors of %lld elements", D::vector_b);
        if(args->n % D::vector_c != 0)
            return fail(TW_UNSUPPORTED, "a line of C is not a multiple of its vectors of %lld elements", D::vector_c);
        return TW_OK;
    }

    // CK Tile's arguments of each group.
    static int workspace_size(const tw_grouped_gemm_args* args, uint64_t* bytes)
    {
        *bytes           = 0;
        const int status = check(args);
        if(status == TW_OK)
            *bytes = static_cast<uint64_t>(args->groups) * sizeof(typename D::Group::Entry);
        return status;
    }

    static int run(const tw_grouped_gemm_args* args, hipStream_t stream)
    {
        if(const int status = supports(args); status != TW_OK)
            return status;
        if(args->a == nullptr || args->b == nullptr || args->c == nullptr)
            return fail(TW_BAD_ARGS, "a, b and c must not be null");
        if(D::Group::has_scales && (args->scale_a == nullptr || args->scale_b == nullptr))
            return fail(TW_BAD_ARGS, "scale_a and scale_b must not be null");
        if(args->offs == nullptr && args->ragged != ragged_none)
            return fail(TW_BAD_ARGS, "offs must not be null, unless ragged is 3");
        uint64_t needed = 0;
        workspace_size(args, &needed);
        if(args->workspace == nullptr || args->workspace_size < needed)
            return fail(TW_WORKSPACE, "the workspace has %lld bytes, need %lld",
                        args->workspace == nullptr ? 0 : static_cast<long long>(args->workspace_size), needed);
        return launch(*args, stream);
    }

    static int launch(const tw_grouped_gemm_args& args, hipStream_t stream)
    {
        const ck_tile::stream_config config{stream};
        const auto i = [](int64_t value) { return static_cast<int32_t>(value); };
        const GroupedCall call{
            args.a, args.b, static_cast<const float*>(args.scale_a), static_cast<const float*>(args.scale_b),
            static_cast<const int32_t*>(args.offs), args.c, args.workspace,
            args.stride_a * (rows_a ? args.m : args.k), args.stride_b * (rows_b ? args.k : args.n),
            args.stride_c * args.m, i(args.m), i(args.n), i(args.k), i(args.stride_a), i(args.stride_b),
            i(args.stride_c), i(args.ragged), i(args.groups)};
        // As many work-groups as the device holds at once, for this very kernel and its launch bounds; less if there
        // cannot be so many tiles.
        int resident     = 0;
        const auto entry = ck_tile::kentry<D::blocks_per_cu, K, Entries, ck_tile::index_t>;
        if(const auto error = hipOccupancyMaxActiveBlocksPerMultiprocessor(&resident, entry, D::threads, 0);
           error != hipSuccess)
            return fail(TW_HIP_ERROR, "asking for the occupancy failed with HIP error %lld", error);
        const int64_t at_once = int64_t{ck_tile::get_available_compute_units(config)} * std::max(resident, 1);
        const auto grid       = static_cast<unsigned>(std::min(at_once, count_tiles(args)));
        prepare_groups<D><<<dim3(static_cast<unsigned>(args.groups)), dim3(PrepareGroups<D>::kBlockSize), 0, stream>>>(
            call);
        // Not CK Tile's BlockSize: the host assumes waves of 64 lanes.
        ck_tile::make_kernel<D::blocks_per_cu>(
            K{}, dim3(grid), dim3(D::threads), 0,
            ck_tile::cast_pointer_to_constant_address_space(static_cast<const void*>(args.workspace)),
            static_cast<ck_tile::index_t>(args.groups))(config);
        if(const auto error = hipGetLastError(); error != hipSuccess)
            return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
        return TW_OK;
    }
};

} // namespace tilewright_grouped_gemm

#define TILEWRIGHT_GROUPED_GEMM_EXPORT(symbol) \
    TILEWRIGHT_EXPORT(symbol, tilewright_grouped_gemm::Launcher, tw_grouped_gemm_args)

#endif
