#ifndef TILEWRIGHT_SCALE_H
#define TILEWRIGHT_SCALE_H

#include <stdint.h>

typedef struct tw_scale_args {
    uint64_t size;
    const void* x;
    void* y;
    int64_t n;
} tw_scale_args;

#endif
