#ifndef TILEWRIGHT_AXPB_H
#define TILEWRIGHT_AXPB_H

#include <stdint.h>

enum tw_status { TW_OK, TW_BAD_ARGS, TW_UNSUPPORTED, TW_WORKSPACE, TW_HIP_ERROR };

typedef struct tw_axpb_args {
    uint64_t size;
    const float* x;
    const float* b;
    float* parts; /* count times n */
    float* y;
    float* z;
    int64_t n;
    int64_t count;
    double factor;
    int64_t onto; /* y is added to */
} tw_axpb_args;

#endif
