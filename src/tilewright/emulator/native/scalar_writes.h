/* Scalar stores and atomics: one address per wave, from scalar registers. They reach memory at issue. */
#pragma once
#include "atomics.h"
#include "scalar_memory.h"

/* A place in the counter of scalar accesses, which end in any order. */
static int occupy_scalar(Wave *w, const Instruction *i) {
    if (!w->worker->launch->strict)
        return NEXT;
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    p->in_order = false;
    return finish(w, p);
}

/* `detail` dwords. */
static int run_scalar_store(Wave *w, const Instruction *i) {
    uint64_t address = scalar_pair(w, i->in[0].index) + (uint64_t)scalar_offset(w, i);
    if (address & 3)
        return fail(w, ALIGNMENT_FAULT, -1, address, 4);
    if (!held(w->worker, address, 4 * i->detail))
        return fail(w, MEMORY_FAULT, -1, address, 4 * i->detail);
    memcpy((void *)address, &w->s[i->out.index], 4 * i->detail);
    w->worker->bytes[WRITTEN] += 4 * i->detail;
    return occupy_scalar(w, i);
}

/* Dword by dword: those outside of the buffer are not written. */
static int run_scalar_buffer_store(Wave *w, const Instruction *i) {
    Buffer buffer;
    if (scalar_buffer(w, i, &buffer))
        return STOPPED;
    for (uint32_t k = 0; k < i->detail; k++) {
        int64_t begin = scalar_offset(w, i) + 4 * (int64_t)k;
        if (begin < 0 || begin + 4 > buffer.records)
            continue;
        uint64_t address = buffer.base + (uint64_t)begin;
        uint32_t code = scalar_fault(w, address, 4);
        if (code)
            return fail(w, code, -1, address, 4);
        memcpy((void *)address, &w->s[i->out.index + (int)k], 4);
        w->worker->bytes[WRITTEN] += 4;
    }
    return occupy_scalar(w, i);
}

static int scalar_atomic_at(Wave *w, const Instruction *i, uint64_t address) {
    if (!held(w->worker, address, i->size))
        return fail(w, MEMORY_FAULT, -1, address, i->size);
    if (address & (i->size - 1))
        return fail(w, ATOMIC_FAULT, -1, address, i->size);
    uint8_t *place[LANES] = {(uint8_t *)address};
    uint32_t value[4][LANES], old[2][LANES];
    for (int k = 0; k < 4; k++)
        value[k][0] = i->out.index + k < SCALARS ? w->s[i->out.index + k] : 0;
    perform(i->detail, i->size, place, (const uint32_t(*)[LANES])value, 1, old);
    w->worker->atomics++;
    w->worker->bytes[WRITTEN] += i->size;
    if (!(i->flags & RETURNS))
        return occupy_scalar(w, i);
    w->worker->bytes[READ] += i->size;
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    p->value[0][0] = old[0][0];
    p->value[1][0] = old[1][0];
    return deliver_scalars(w, p, i->size / 4);
}

static int run_scalar_atomic(Wave *w, const Instruction *i) {
    return scalar_atomic_at(w, i, scalar_pair(w, i->in[0].index) + (uint64_t)scalar_offset(w, i));
}

static int run_scalar_buffer_atomic(Wave *w, const Instruction *i) {
    Buffer buffer;
    int64_t begin = scalar_offset(w, i);
    if (scalar_buffer(w, i, &buffer))
        return STOPPED;
    if (begin >= 0 && begin + (int64_t)i->size <= buffer.records)
        return scalar_atomic_at(w, i, buffer.base + (uint64_t)begin);
    return i->flags & RETURNS ? fail(w, OUTSIDE_FAULT, -1, 0, 0) : occupy_scalar(w, i);
}
