#ifndef TILEWRIGHT_SCALE_H
#define TILEWRIGHT_SCALE_H

#include <stdint.h>

#define TW_SCALE_ABI_VERSION 1

typedef struct tw_scale_args {
    uint64_t size; /* sizeof(tw_scale_args) of the caller; the fields after n are 1, 1, null, 0 for a smaller one */
    const void* x;
    void* y;
    int64_t n;
    int64_t stride_x, stride_y; /* in elements */
    void* workspace;
    uint64_t workspace_size;
} tw_scale_args;

#endif
