// What the launchers of grouped convolutions share: checks of the arguments, sizes, and the ways to store.
#ifndef TILEWRIGHT_GROUPED_CONV_ARGS_HPP
#define TILEWRIGHT_GROUPED_CONV_ARGS_HPP

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tilewright_call.hpp"
#include "tilewright_grouped_conv.h"
#include "tilewright_grouped_conv_input_gaps.hpp"

namespace tilewright_grouped_conv {

using tilewright_call::fail;

enum class Direction
{
    forward,
    backward_data,
    backward_weight
};

inline int64_t output_size(const tw_grouped_conv_args& args, int i)
{
    const int64_t reach = (args.filter_size[i] - 1) * args.dilation[i] + 1;
    return (args.input_size[i] + args.left_pad[i] + args.right_pad[i] - reach) / args.stride[i] + 1;
}

inline int64_t outputs(const tw_grouped_conv_args& args)
{
    int64_t count = 1;
    for(int i = 0; i < args.ndim; ++i)
        count *= output_size(args, i);
    return count;
}

inline int64_t product(const int64_t (&extents)[TW_GROUPED_CONV_MAX_NDIM], int64_t ndim)
{
    int64_t result = 1;
    for(int i = 0; i < ndim; ++i)
        result *= extents[i];
    return result;
}

inline int64_t inputs(const tw_grouped_conv_args& args)
{
    return args.n * args.channels_in * product(args.input_size, args.ndim);
}

inline int64_t weights(const tw_grouped_conv_args& args)
{
    return args.channels_out * (args.channels_in / args.g) * product(args.filter_size, args.ndim);
}

// Whether nothing is computed for the gradients of some inputs. All of these meet no tap, so that they are zero: inputs
// between the taps, and beside the first and the last of them.
inline bool leaves_gaps(const tw_grouped_conv_args& args)
{
    for(int i = 0; i < args.ndim; ++i)
        if(leaves_gaps_along(args.input_size[i], output_size(args, i), args.filter_size[i], args.stride[i],
                             args.dilation[i], args.left_pad[i]))
            return true;
    return false;
}

// A form of the loop over K that a kernel is compiled for.
struct Loop
{
    int64_t steps;
    bool hot_loop;
    ck_tile::TailNumber tail;
};

template <typename D>
Loop loop_of(int64_t steps)
{
    const auto count    = static_cast<ck_tile::index_t>(steps);
    const bool hot_loop = steps != D::unlooped && D::BasePipeline::BlockHasHotloop(count);
    return {steps, hot_loop, D::BasePipeline::GetBlockLoopTailNum(count)};
}

inline int check_counts(const tw_grouped_conv_args& args)
{
    for(const int64_t value : {args.n, args.g, args.channels_in, args.channels_out, args.k_batch})
        if(value < 1)
            return fail(TW_BAD_ARGS, "a size or count is %lld, it must be at least 1", value);
    for(int i = 0; i < args.ndim; ++i)
    {
        for(const int64_t value : {args.input_size[i], args.filter_size[i], args.stride[i], args.dilation[i]})
            if(value < 1 || value > INT32_MAX)
                return fail(TW_BAD_ARGS, "an extent is %lld, it must be 1 to %lld", value, INT32_MAX);
        for(const int64_t value : {args.left_pad[i], args.right_pad[i]})
            if(value < 0 || value > INT32_MAX)
                return fail(TW_BAD_ARGS, "a pad is %lld, it must be 0 to %lld", value, INT32_MAX);
        // Not by output_size, which rounds a negative number of steps up to 0.
        const int64_t reach  = (args.filter_size[i] - 1) * args.dilation[i] + 1;
        const int64_t padded = args.input_size[i] + args.left_pad[i] + args.right_pad[i];
        if(padded < reach)
            return fail(TW_BAD_ARGS, "the filter reaches over %lld of %lld padded input elements", reach, padded);
    }
    if(args.channels_in % args.g != 0 || args.channels_out % args.g != 0)
        return fail(TW_BAD_ARGS, "%lld input and %lld output channels cannot be shared by %lld groups",
                    args.channels_in, args.channels_out, args.g);
    return TW_OK;
}

// CK Tile keeps element offsets in 32 bits with a sign, and keeps an access out of a tensor by 2^31 bytes added to it.
// Images that are too many for that are shared out to parts of the grid, but for the gradient of the weights.
inline int check_reach(const tw_grouped_conv_args& args, int64_t images, int64_t bytes_of_input,
                       int64_t bytes_of_output, int64_t bytes_of_weight)
{
    constexpr int64_t most = int64_t{1} << 31;
    const int64_t input    = inputs(args) / args.n * images * bytes_of_input;
    const int64_t output   = args.channels_out * outputs(args) * images * bytes_of_output;
    for(const int64_t bytes : {input, output, weights(args) * bytes_of_weight})
        if(bytes > most)
            return fail(TW_UNSUPPORTED, "a tensor or image has %lld bytes, CK Tile addresses up to %lld", bytes, most);
    return TW_OK;
}

template <typename D>
int check_args(const tw_grouped_conv_args* args)
{
    if(args == nullptr || args->size < sizeof(tw_grouped_conv_args))
        return fail(TW_BAD_ARGS, "args->size is %lld, tw_grouped_conv_args has %lld bytes",
                    args == nullptr ? 0 : args->size, sizeof(tw_grouped_conv_args));
    if(args->ndim < 1 || args->ndim > TW_GROUPED_CONV_MAX_NDIM)
        return fail(TW_BAD_ARGS, "ndim is %lld, it must be 1 to %lld", args->ndim, TW_GROUPED_CONV_MAX_NDIM);
    if(const int status = check_counts(*args); status != TW_OK)
        return status;
    if(args->ndim != D::ndim)
        return fail(TW_UNSUPPORTED, "the problem has %lld spatial dimensions, this kernel %lld", args->ndim, D::ndim);
    if(args->k_batch > 1 && !D::split_k)
        return fail(TW_UNSUPPORTED, "k_batch is %lld but this kernel was built without split-K", args->k_batch);
    if constexpr(D::direction == Direction::forward)
        return check_reach(*args, D::explicit_gemm ? args->n : 1, sizeof(typename D::ADataType),
                           sizeof(typename D::CDataType), sizeof(typename D::BDataType));
    else if constexpr(D::direction == Direction::backward_data)
        return check_reach(*args, D::explicit_gemm ? args->n : 1, sizeof(typename D::CDataType),
                           sizeof(typename D::ADataType), sizeof(typename D::BDataType));
    else
        return check_reach(*args, args->n, sizeof(typename D::BDataType), sizeof(typename D::ADataType), sizeof(float));
}

// Calls `act` with the one instance of D that computes a loop in this form.
template <typename D, typename Act>
int with_instance(const Loop& loop, bool adds, const Act& act)
{
    using Store = ck_tile::memory_operation_enum;
    int status  = TW_OK;
    D::BasePipeline::TailHandler(
        [&](auto hot_loop, auto tail) {
            if constexpr(D::split_k)
                if(adds)
                {
                    status = act(typename D::template Instance<hot_loop.value, tail.value, Store::atomic_add>{});
                    return;
                }
            status = act(typename D::template Instance<hot_loop.value, tail.value, Store::set>{});
        },
        loop.hot_loop, loop.tail);
    return status;
}

// Calls `name` with every instance that with_instance can choose.
template <typename D, typename Name>
void each_instance(const Name& name)
{
    using Store = ck_tile::memory_operation_enum;
    D::BasePipeline::TailHandler(
        [&](auto hot_loop, auto tail) {
            if constexpr(D::split_k)
                name(typename D::template Instance<hot_loop.value, tail.value, Store::atomic_add>{});
            name(typename D::template Instance<hot_loop.value, tail.value, Store::set>{});
        },
        true, ck_tile::TailNumber::Full);
}

inline int launched()
{
    if(const auto error = hipGetLastError(); error != hipSuccess)
        return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
    return TW_OK;
}

// The second stage: sums in fp32 to the type of the result.
template <typename To>
__global__ void convert(const float* from, To* to, int64_t count)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if(i < count)
        to[i] = ck_tile::type_convert<To>(from[i]);
}

template <typename To>
int launch_convert(const void* from, void* to, int64_t count, hipStream_t stream)
{
    constexpr int threads = 256;
    const dim3 grid(static_cast<uint32_t>((count + threads - 1) / threads));
    convert<To><<<grid, dim3(threads), 0, stream>>>(static_cast<const float*>(from), static_cast<To*>(to), count);
    return launched();
}

} // namespace tilewright_grouped_conv

#endif
