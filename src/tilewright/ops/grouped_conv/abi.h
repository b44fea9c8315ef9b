/* The C interface of every grouped convolution kernel that Tilewright builds.
 *
 * Plain C, the same for a kernel built just in time, for a pack built ahead, and for C++ users.
 * A kernel with symbol S exports S_supports, S_workspace_size, S_run, S_message and S_name.
 *
 * Tensors are packed, channels last:
 *   input   n x input_size... x g x channels_in/g
 *   weight  g x channels_out/g x filter_size... x channels_in/g
 *   output  n x output_size... x g x channels_out/g
 * A forward kernel reads a = input and b = weight and writes c = output. A kernel for the gradient of the input
 * reads a = output gradient and b = weight and writes c = input gradient. One for the gradient of the weights reads
 * a = output gradient and b = input and writes c = weight gradient.
 */
#ifndef TILEWRIGHT_GROUPED_CONV_H
#define TILEWRIGHT_GROUPED_CONV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_GROUPED_CONV_ABI_VERSION 1
#define TW_GROUPED_CONV_MAX_NDIM 3

/* Every op returns these, and the header of every op has this very text, for programs that use several. */
#ifndef TILEWRIGHT_STATUS
#define TILEWRIGHT_STATUS
enum tw_status {
    TW_OK = 0,
    TW_BAD_ARGS = 1,    /* the struct itself is unusable: wrong size, null pointer, size below 1 */
    TW_UNSUPPORTED = 2, /* this kernel cannot compute this problem */
    TW_WORKSPACE = 3,   /* the workspace is missing or too small */
    TW_HIP_ERROR = 4    /* the HIP runtime reported an error */
};
#endif

typedef struct tw_grouped_conv_args {
    uint64_t size; /* sizeof(tw_grouped_conv_args) of the caller; the struct only ever grows at its end */
    const void* a;
    const void* b;
    void* c;
    int64_t ndim; /* spatial dimensions: the first ndim numbers of each array below count, outermost first */
    int64_t n, g;
    int64_t channels_in, channels_out; /* of all g groups together */
    int64_t input_size[TW_GROUPED_CONV_MAX_NDIM];
    int64_t filter_size[TW_GROUPED_CONV_MAX_NDIM];
    int64_t stride[TW_GROUPED_CONV_MAX_NDIM];
    int64_t dilation[TW_GROUPED_CONV_MAX_NDIM];
    int64_t left_pad[TW_GROUPED_CONV_MAX_NDIM];
    int64_t right_pad[TW_GROUPED_CONV_MAX_NDIM];
    int64_t k_batch; /* the sum of a weight gradient is split into this many parts, added atomically; 1 = no split */
    void* workspace;
    uint64_t workspace_size;
} tw_grouped_conv_args;

typedef int (*tw_grouped_conv_supports_fn)(const tw_grouped_conv_args* args);
typedef int (*tw_grouped_conv_workspace_size_fn)(const tw_grouped_conv_args* args, uint64_t* bytes);
typedef int (*tw_grouped_conv_run_fn)(const tw_grouped_conv_args* args, void* stream);

#ifdef __cplusplus
}

/* tilewright.hpp asks this which op a struct of arguments belongs to. */
namespace tilewright {
template <typename Args>
struct Op;
template <>
struct Op<tw_grouped_conv_args>
{
    static constexpr const char* name     = "grouped_conv";
    static constexpr uint32_t abi_version = TW_GROUPED_CONV_ABI_VERSION;
};
} /* namespace tilewright */
#endif
#endif
