/* Scalar loads: one address per wave, into scalar registers. */
#pragma once
#include "buffer_descriptor.h"
#include "memory.h"

static uint32_t scalar_element(uint64_t address, uint32_t size, bool is_signed) {
    uint32_t word = 0, unused = 32 - 8 * size;
    memcpy(&word, (const void *)address, size);
    return is_signed ? (uint32_t)((int32_t)(word << unused) >> unused) : word;
}

/* The sum of the instruction's offsets; registers are unsigned, and may count 64 bytes. */
static int64_t scalar_offset(Wave *w, const Instruction *i) {
    int64_t offset = i->offset;
    for (int k = 1; k < 3; k++)
        if (i->in[k].kind == SCALAR)
            offset += (int64_t)w->s[i->in[k].index] * (i->flags & SCALED ? 64 : 1);
    return offset;
}

static int deliver_scalars(Wave *w, Pending *p, uint32_t count) {
    p->commit = commit_scalars;
    p->in_order = false;
    p->count = count;
    return finish(w, p);
}

/* `detail` elements of `size` bytes. */
static int run_scalar_load(Wave *w, const Instruction *i) {
    uint64_t address = scalar_pair(w, i->in[0].index) + (uint64_t)scalar_offset(w, i);
    uint32_t whole = i->size * i->detail;
    if (address & (i->size - 1))
        return fail(w, ALIGNMENT_FAULT, -1, address, i->size);
    if (!held(w->worker, address, whole))
        return fail(w, MEMORY_FAULT, -1, address, whole);
    w->worker->bytes[READ] += whole;
    if (checks_of(w))
        check_scalar(w, address, whole);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    for (uint32_t k = 0; k < i->detail; k++)
        p->value[k][0] = scalar_element(address + k * i->size, i->size, i->flags & SIGNED);
    return deliver_scalars(w, p, i->detail);
}

/* The buffer of a scalar access, which must have no stride. */
static int scalar_buffer(Wave *w, const Instruction *i, Buffer *buffer) {
    int register_ = i->in[0].index;
    return raw_buffer(w, register_, buffer) && !buffer->stride ? NEXT : fail_descriptor(w, register_);
}

/* What is wrong with the address of an element, if anything is. */
static uint32_t scalar_fault(Wave *w, uint64_t address, uint32_t size) {
    return address & (size - 1) ? ALIGNMENT_FAULT : held(w->worker, address, size) ? NO_FAULT : MEMORY_FAULT;
}

static int run_scalar_buffer_load(Wave *w, const Instruction *i) {
    Buffer buffer;
    if (scalar_buffer(w, i, &buffer))
        return STOPPED;
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    for (uint32_t k = 0; k < i->detail; k++) {
        int64_t begin = scalar_offset(w, i) + (int64_t)(k * i->size);
        p->value[k][0] = 0;
        if (begin < 0 || begin + i->size > buffer.records)
            continue;
        uint64_t address = buffer.base + (uint64_t)begin;
        uint32_t code = scalar_fault(w, address, i->size);
        if (code) {
            release(w, p);
            return fail(w, code, -1, address, i->size);
        }
        p->value[k][0] = scalar_element(address, i->size, i->flags & SIGNED);
        w->worker->bytes[READ] += i->size;
        if (checks_of(w))
            check_scalar(w, address, i->size);
    }
    return deliver_scalars(w, p, i->detail);
}
