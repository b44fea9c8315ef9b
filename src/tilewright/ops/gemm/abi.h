/* The C interface of every GEMM kernel that Tilewright builds.
 *
 * Plain C, the same for a kernel built just in time, for a pack built ahead, and for C++ users.
 * A kernel with symbol S exports S_supports, S_workspace_size, S_run, S_message and S_name.
 *
 * C = elementwise(A * B, D...), with A of m x k, B of k x n, C and every D of m x n.
 * Strides are the distance in elements between neighbours of the non-contiguous dimension:
 * for a row-major matrix from row to row, for a column-major one from column to column.
 */
#ifndef TILEWRIGHT_GEMM_H
#define TILEWRIGHT_GEMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_GEMM_ABI_VERSION 1
#define TW_GEMM_MAX_D 8

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

typedef struct tw_gemm_args {
    uint64_t size; /* sizeof(tw_gemm_args) of the caller; the struct only ever grows at its end */
    const void* a;
    const void* b;
    void* c;
    const void* d[TW_GEMM_MAX_D];
    int64_t m, n, k;
    int64_t stride_a, stride_b, stride_c;
    int64_t stride_d[TW_GEMM_MAX_D];
    int64_t k_batch; /* K is split into this many parts, summed atomically; 1 = no split */
    int64_t batch;   /* number of matrices of a batched kernel; 1 otherwise */
    int64_t batch_stride_a, batch_stride_b, batch_stride_c;
    void* workspace;
    uint64_t workspace_size;
} tw_gemm_args;

typedef int (*tw_gemm_supports_fn)(const tw_gemm_args* args);
typedef int (*tw_gemm_workspace_size_fn)(const tw_gemm_args* args, uint64_t* bytes);
typedef int (*tw_gemm_run_fn)(const tw_gemm_args* args, void* stream);

#ifdef __cplusplus
}

/* tilewright.hpp asks this which op a struct of arguments belongs to. */
namespace tilewright {
template <typename Args>
struct Op;
template <>
struct Op<tw_gemm_args>
{
    static constexpr const char* name     = "gemm";
    static constexpr uint32_t abi_version = TW_GEMM_ABI_VERSION;
};
} /* namespace tilewright */
#endif
#endif
