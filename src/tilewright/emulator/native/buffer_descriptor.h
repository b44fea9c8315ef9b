/* The four scalar registers that describe a buffer. emulator/access/buffer_descriptor.py says what their bits mean, and
 * which are known. */
#pragma once
#include "wave.h"

typedef struct {
    uint64_t base;
    int64_t records; /* length in bytes; of buffers with a stride, records */
    uint32_t stride;
} Buffer;

enum { GFX9_LAYOUT = 0xc0000000, GFX9_FLAGS = 0xfff80000, GFX11_LAYOUT = 0xffff0000, GFX11_FLAGS = 0xcefc0000 };
enum { BOUNDS = 0x30000000, BY_BYTES = 0x30000000, UNBOUNDED = 0x20000000 };

/* Whether the descriptor is one that is known. */
static bool raw_buffer(const Wave *w, int register_, Buffer *buffer) {
    const uint32_t *words = &w->s[register_];
    buffer->base = words[0] | (uint64_t)(words[1] & 0xffff) << 32;
    buffer->records = words[2];
    buffer->stride = words[1] >> 16 & 0x3fff;
    if (w->worker->launch->gfx9)
        return !(words[1] & GFX9_LAYOUT) && !(words[3] & GFX9_FLAGS);
    uint32_t bounds = words[3] & BOUNDS;
    if (bounds == UNBOUNDED && words[2])
        buffer->records = 1ll << 40; /* more than any offset */
    return !(words[1] & GFX11_LAYOUT) && !(words[3] & GFX11_FLAGS) && (bounds == BY_BYTES || bounds == UNBOUNDED);
}

/* Whether this is the buffer through which gfx90a reaches private memory. */
static bool is_swizzled(const Wave *w, int register_) {
    return w->worker->launch->gfx9 && w->s[register_ + 1] >> 31;
}
