// The host side of convolution kernels: checks, launch and the C functions of tilewright_grouped_conv.h.
//
// A rendered kernel describes itself in a struct D:
//   name                        the kernel's slug
//   direction, ndim             what it computes; ck_ndim: in how many dimensions CK Tile does
//   ADataType to CLayout        types and layouts of the implicit GEMM; Stored is what the GEMM itself stores
//   Partitioner, BasePipeline   CK Tile's mapping of work-groups to tiles, and its loop arithmetic
//   Instance<hot, tail, store>  CK Tile's kernel for one form of the loop over K and one way to store
//   block_m, block_k, merge_groups, blocks_per_cu, split_k, two_stage, split_image, explicit_gemm
//                               fields of its config
//   unlooped                    a number of steps that has no hot loop although CK Tile says so; 0 = none
//   least_steps                 parts of a sum with fewer steps along K than this are computed wrongly
//   unbounded_add               atomic adds are not checked against the edge of the result
//   add_bytes                   what one atomic add takes of the result, at a multiple of itself
#ifndef TILEWRIGHT_GROUPED_CONV_LAUNCH_HPP
#define TILEWRIGHT_GROUPED_CONV_LAUNCH_HPP

#include "tilewright_grouped_conv_implicit.hpp"
#include "tilewright_grouped_conv_plain.hpp"

namespace tilewright_grouped_conv {

template <typename D>
struct Launcher
{
    using Form = std::conditional_t<D::explicit_gemm, PlainGemm<D>, ImplicitGemm<D>>;

    static int check(const tw_grouped_conv_args* args)
    {
        if(const int status = check_args<D>(args); status != TW_OK)
            return status;
        if(const int status = Form::check(*args); status != TW_OK || Form::one_instance)
            return status;
        // Beyond the end of a sum are zeros, beyond that of a part is the next one.
        if(const int64_t steps = Form::steps(*args);
           !D::explicit_gemm && args->k_batch > 1 && steps < D::least_steps)
            return fail(TW_UNSUPPORTED, "a part of the sum takes %lld steps, this kernel needs %lld", steps,
                        D::least_steps);
        const int64_t rows = args->channels_out / args->g * D::merge_groups;
        if(D::unbounded_add && args->k_batch > 1 && rows % D::block_m != 0)
            return fail(TW_UNSUPPORTED, "%lld output channels are not a multiple of block m = %lld, and this kernel's "
                        "atomic adds do not stop at the last of them", rows, D::block_m);
        return TW_OK;
    }

    using OneInstance = typename D::template Instance<true, ck_tile::TailNumber::Full, ck_tile::memory_operation_enum::set>;

    // Calls `act` with the one instance that computes this problem.
    template <typename Act>
    static int with_chosen(const tw_grouped_conv_args& args, const Act& act)
    {
        if constexpr(Form::one_instance)
            return act(OneInstance{});
        else
            return with_instance<D>(loop_of<D>(Form::steps(args)), args.k_batch > 1, act);
    }

    static void name_instances()
    {
        if constexpr(Form::one_instance)
            name_instance(OneInstance{});
        else
            each_instance<D>([](auto instance) { name_instance(instance); });
        if constexpr(D::two_stage)
            static_cast<void>(&convert<typename D::CDataType>);
    }

    template <typename K>
    static void name_instance(K)
    {
        using Args = decltype(K::MakeKernelArgs(Form::host_args(std::declval<const tw_grouped_conv_args&>(), nullptr)));
        static_cast<void>(&ck_tile::kentry<D::blocks_per_cu, K, Args>);
    }

    static int supports(const tw_grouped_conv_args* args)
    {
        if(const int status = check(args); status != TW_OK)
            return status;
        return with_chosen(*args, [&](auto instance) -> int {
            using K = decltype(instance);
            if(!Form::template supported<K>(K::MakeKernelArgs(Form::host_args(*args, nullptr))))
                return fail(TW_UNSUPPORTED, "CK Tile's IsSupportedArgument refuses this convolution "
                            "(CK_TILE_LOGGING=1 tells why)");
            return TW_OK;
        });
    }

    static int workspace_size(const tw_grouped_conv_args* args, uint64_t* bytes)
    {
        *bytes           = 0;
        const int status = check(args);
        if(status == TW_OK && D::two_stage)
            *bytes = weights(*args) * sizeof(float);
        return status;
    }

    static int run(const tw_grouped_conv_args* args, hipStream_t stream)
    {
        if(const int status = supports(args); status != TW_OK)
            return status;
        if(args->a == nullptr || args->b == nullptr || args->c == nullptr)
            return fail(TW_BAD_ARGS, "a, b and c must not be null");
        void* result = args->c;
        if constexpr(D::two_stage)
        {
            const uint64_t needed = weights(*args) * sizeof(float);
            if(args->workspace == nullptr || args->workspace_size < needed)
                return fail(TW_WORKSPACE, "the workspace has %lld bytes, this problem needs %lld", args->workspace_size,
                            needed);
            result = args->workspace;
        }
        // Lines of the result are whole vectors, which are whole adds; only its beginning may be off.
        if(const auto beyond = reinterpret_cast<uintptr_t>(result) % D::add_bytes; args->k_batch > 1 && beyond != 0)
            return fail(TW_UNSUPPORTED, "c or the workspace begins %lld bytes past a multiple of the %lld bytes that an "
                        "atomic add takes; align it, or use k_batch 1", beyond, D::add_bytes);
        // Parts of a sum are added to what is there, and inputs that meet no tap have a gradient of zero.
        size_t cleared = 0;
        if(args->k_batch > 1)
            cleared = weights(*args) * sizeof(typename D::Stored);
        else if(D::direction == Direction::backward_data && leaves_gaps(*args))
            cleared = inputs(*args) * sizeof(typename D::Stored);
        if(cleared > 0)
            if(const auto error = hipMemsetAsync(result, 0, cleared, stream); error != hipSuccess)
                return fail(TW_HIP_ERROR, "hipMemsetAsync failed with HIP error %lld", error);
        const int status =
            with_chosen(*args, [&](auto instance) { return launch<decltype(instance)>(*args, result, stream); });
        if constexpr(D::two_stage)
            if(status == TW_OK)
                return launch_convert<typename D::CDataType>(result, args->c, weights(*args), stream);
        return status;
    }

    template <typename K>
    static int launch(const tw_grouped_conv_args& args, void* result, hipStream_t stream)
    {
        auto arguments  = K::MakeKernelArgs(Form::host_args(args, result));
        const dim3 grid = Form::template grid<K>(args, arguments);
        ck_tile::make_kernel<D::blocks_per_cu>(K{}, grid, K::BlockSize(), 0, arguments)(
            ck_tile::stream_config{stream});
        return launched();
    }
};

} // namespace tilewright_grouped_conv

#define TILEWRIGHT_GROUPED_CONV_EXPORT(symbol) \
    TILEWRIGHT_EXPORT(symbol, tilewright_grouped_conv::Launcher, tw_grouped_conv_args)

#endif
