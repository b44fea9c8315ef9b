/* The C interface of every attention kernel that Tilewright builds.
 *
 * Plain C, the same for a kernel built just in time, for a pack built ahead, and for C++ users.
 * A kernel with symbol S exports S_supports, S_workspace_size, S_run, S_message and S_name.
 *
 * A kernel of a family reads and writes the tensors that its family has; the others are not looked at:
 *   forward, pagedkv, batch_prefill  q, k, v [, bias] -> o [, lse, randval]
 *   splitkv                          q, k, v [, bias] -> o_acc, lse_acc, one part of the keys each
 *   combine                          o_acc, lse_acc -> o [, lse]
 *   appendkv                         k_new, v_new, q -> k, v, q, in place
 *   dot_do_o                         o, d_o -> d
 *   dq_dk_dv                         q, k, v, lse, d_o, d [, bias] -> dq_acc, dk, dv [, dbias, randval]
 *   convert_dq                       dq_acc -> dq
 */
#ifndef TILEWRIGHT_FMHA_H
#define TILEWRIGHT_FMHA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_FMHA_ABI_VERSION 1

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

/* What tells two problems apart that a kernel was compiled for or not. */
enum tw_fmha_mask { TW_FMHA_NO_MASK = 0, TW_FMHA_TOP_LEFT = 1, TW_FMHA_BOTTOM_RIGHT = 2 };
enum tw_fmha_bias { TW_FMHA_NO_BIAS = 0, TW_FMHA_ELEMENTWISE = 1, TW_FMHA_ALIBI = 2 };
enum tw_fmha_rotary { TW_FMHA_NO_ROTARY = 0, TW_FMHA_INTERLEAVED = 1, TW_FMHA_HALF = 2 };

/* A tensor of (part,) batch, head, row, element: strides in elements, that of the elements is 1.
 * In group mode rows of all sequences follow each other and batch is 0. Pages take the place of the batch.
 * lse, lse_acc and d have no elements: a row is one number, and row is 1. ALiBi's slopes (bias) have batch and head. */
typedef struct tw_fmha_tensor {
    void* data;
    int64_t part, batch, head, row;
} tw_fmha_tensor;

typedef struct tw_fmha_args {
    uint64_t size; /* sizeof(tw_fmha_args) of the caller; the struct only ever grows at its end */

    tw_fmha_tensor q, k, v, o, lse, bias, randval;
    tw_fmha_tensor o_acc, lse_acc;
    tw_fmha_tensor k_new, v_new;
    tw_fmha_tensor d_o, d, dq_acc, dq, dk, dv, dbias;

    const int32_t* seqstart_q; /* group mode: batch + 1 first rows of the sequences */
    const int32_t* seqstart_k;
    const int32_t* seqlens_q; /* lengths where they are not the differences of the above; may be null */
    const int32_t* seqlens_k; /* keys in the cache of each sequence; may be null where all have seqlen_k */
    const int32_t* page_table; /* numbers of pages, batch x page_table_stride */
    const int32_t* page_starts; /* batch_prefill: batch + 1 places in page_list */
    const int32_t* page_list;
    const int32_t* cache_index; /* which sequence of the cache a batch has; may be null */
    const void* rotary_cos;     /* positions x rotary_dim / 2 */
    const void* rotary_sin;
    const uint64_t* drop_seed_at; /* in device memory, instead of the numbers below; may be null */
    const uint64_t* drop_offset_at;

    int64_t group_mode; /* 0 or 1 */
    int64_t batch, heads, kv_heads;
    int64_t seqlen_q, seqlen_k; /* the longest in group mode */
    int64_t hdim_q, hdim_v;
    int64_t mask, window_left, window_right, sink; /* enum tw_fmha_mask; windows below 0 have no end */
    int64_t bias_kind;                             /* enum tw_fmha_bias */
    int64_t wants_lse, wants_randval, static_quant, bias_gradient, deterministic; /* 0 or 1 */
    int64_t num_splits;
    int64_t page_size, pages, page_table_stride; /* page_size 0: no pages */
    int64_t seqlen_new;
    int64_t rotary, rotary_dim; /* enum tw_fmha_rotary */
    int64_t dq_parts;
    int64_t min_seqlen_q;
    uint64_t drop_seed, drop_offset;
    double scale, logits_cap, p_drop, scale_p, scale_o;

    void* workspace;
    uint64_t workspace_size;
} tw_fmha_args;

typedef int (*tw_fmha_supports_fn)(const tw_fmha_args* args);
typedef int (*tw_fmha_workspace_size_fn)(const tw_fmha_args* args, uint64_t* bytes);
typedef int (*tw_fmha_run_fn)(const tw_fmha_args* args, void* stream);

#ifdef __cplusplus
}

/* tilewright.hpp asks this which op a struct of arguments belongs to. */
namespace tilewright {
template <typename Args>
struct Op;
template <>
struct Op<tw_fmha_args>
{
    static constexpr const char* name     = "fmha";
    static constexpr uint32_t abi_version = TW_FMHA_ABI_VERSION;
};
} /* namespace tilewright */
#endif
#endif
