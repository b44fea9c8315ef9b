/* buffer_…: memory through a descriptor with a length. Reads past it give 0, writes are dropped, dword by dword. */
#pragma once
#include "atomics.h"
#include "buffer_descriptor.h"
#include "global_memory.h"
#include "lds.h"
#include "memory.h"

/* What an access touches. */
typedef struct {
    uint64_t address[LANES];
    uint64_t inside[4]; /* per dword, the active lanes that are inside the buffer */
    uint32_t pieces;    /* dwords, or 1 when each lane is inside with all of them or none */
} Reach;

/* The offset of each lane without the scalar offset: its two parts are added in 32 bits (see access/buffer.py). */
static void own_offsets(const Wave *w, const Instruction *i, int64_t *own) {
    const uint32_t *offset = i->flags & OFFEN ? w->v[i->in[0].index + !!(i->flags & IDXEN)] : NULL;
    for (int l = 0; l < LANES; l++)
        own[l] = (i->offset + (offset ? (int64_t)offset[l] : 0)) & UINT32_MAX;
}

/* A buffer of records with a stride: the index alone decides whether an access is inside. */
static void reach_record(const Wave *w, const Instruction *i, const Buffer *buffer, const int64_t *own, Reach *r) {
    const uint32_t *index = w->v[i->in[0].index];
    uint64_t inside = 0;
    for (int l = 0; l < LANES; l++) {
        r->address[l] = buffer->base + (uint64_t)(index[l] * (int64_t)buffer->stride + own[l] + scalar32(w, &i->in[2]));
        inside |= (uint64_t)(index[l] < buffer->records) << l;
    }
    for (uint32_t k = 0; k < registers_of(i->size); k++)
        r->inside[k] = inside & exec_of(w);
    r->pieces = 1;
}

static int reach(Wave *w, const Instruction *i, Reach *r) {
    Buffer buffer;
    if (!raw_buffer(w, i->in[1].index, &buffer))
        return fail_descriptor(w, i->in[1].index);
    int64_t own[LANES], soffset = scalar32(w, &i->in[2]), room = buffer.records - soffset;
    own_offsets(w, i, own);
    if (i->flags & IDXEN && buffer.stride) {
        reach_record(w, i, &buffer, own, r);
        return NEXT;
    }
    uint64_t exec = exec_of(w), base = buffer.base + (uint64_t)soffset;
    uint32_t step = i->size < 4 ? i->size : 4, count = registers_of(i->size);
    for (int l = 0; l < LANES; l++)
        r->address[l] = base + (uint64_t)own[l];
    for (uint32_t k = 0; k < count; k += count > 1 ? count - 1 : 1) {
        _Alignas(64) uint8_t inside[LANES];
        for (int l = 0; l < LANES; l++)
            inside[l] = own[l] + (4 * k + step) <= room;
        r->inside[k] = packed_lanes(inside) & exec;
    }
    r->pieces = r->inside[0] == r->inside[count - 1] ? 1 : count;
    for (uint32_t k = 1; r->pieces > 1 && k + 1 < count; k++) {
        r->inside[k] = 0;
        for (int l = 0; l < LANES; l++)
            r->inside[k] |= (uint64_t)(own[l] + (4 * k + step) <= room) << l;
        r->inside[k] &= exec;
    }
    return NEXT;
}

/* Check and count the pieces of an access. */
static int check_pieces(Wave *w, const Instruction *i, Reach *r, int kind, const uint32_t (*value)[LANES]) {
    uint32_t size = r->pieces == 1 ? i->size : 4;
    for (uint32_t k = 0; k < r->pieces; k++) {
        uint64_t address[LANES];
        if (!r->inside[k])
            continue;
        for (int l = 0; l < LANES; l++)
            address[l] = r->address[l] + 4 * k;
        if (check_memory(w, address, size, r->inside[k]))
            return STOPPED;
        count_memory(w, kind, address, size, r->inside[k]);
        check_access(w, kind == READ ? READS : WRITES, address, size, r->inside[k], value ? value + k : NULL);
    }
    return NEXT;
}

/* What a load reads, 0 past the end. */
static int fetch_buffer(Wave *w, const Instruction *i, uint32_t (*value)[LANES]) {
    Reach r;
    if (reach(w, i, &r) || check_pieces(w, i, &r, READ, NULL))
        return STOPPED;
    if (r.pieces != 1 || r.inside[0] != w->all)
        memset(value, 0, registers_of(i->size) * sizeof *value);
    if (r.pieces == 1)
        load_lanes((uint8_t *const *)r.address, i->size, r.inside[0], value);
    else
        for (uint32_t k = 0; k < r.pieces; k++) {
            load_lanes((uint8_t *const *)r.address, 4, r.inside[k], &value[k]);
            for (int l = 0; l < LANES; l++)
                r.address[l] += 4;
        }
    arrive(i, value);
    return NEXT;
}

/* The offset of each lane in its private memory, for the buffer through which gfx90a reaches it. Base and scalar
 * offset count bytes of the whole wave. */
static int private_offsets(Wave *w, const Instruction *i, int64_t *own) {
    Buffer buffer;
    raw_buffer(w, i->in[1].index, &buffer);
    int64_t whole = (int64_t)(buffer.base - w->scratch_address) + scalar32(w, &i->in[2]);
    int64_t lanes = w->worker->launch->lanes;
    if (i->flags & (IDXEN | LDS_DMA) || whole % lanes || whole / lanes & 3)
        return fail_descriptor(w, i->in[1].index);
    own_offsets(w, i, own);
    for (int l = 0; l < LANES; l++)
        own[l] += whole / lanes;
    return NEXT;
}

static int run_buffer_load(Wave *w, const Instruction *i) {
    if (is_swizzled(w, i->in[1].index)) {
        int64_t own[LANES];
        return private_offsets(w, i, own) ? STOPPED : private_load(w, i, own);
    }
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    if (fetch_buffer(w, i, p->value)) {
        release(w, p);
        return STOPPED;
    }
    if (i->flags & LDS_DMA)
        return send_to_lds(w, p);
    return deliver(w, p, registers_of(i->size), exec_of(w));
}

static int run_buffer_store(Wave *w, const Instruction *i) {
    if (is_swizzled(w, i->in[1].index)) {
        int64_t own[LANES];
        return private_offsets(w, i, own) ? STOPPED : private_store(w, i, own);
    }
    Reach r;
    uint32_t room[1][LANES];
    const uint32_t(*value)[LANES] = leaving(w, i, &i->in[3], room);
    if (reach(w, i, &r) || check_pieces(w, i, &r, WRITTEN, value))
        return STOPPED;
    if (r.pieces == 1)
        store_lanes((uint8_t *const *)r.address, i->size, r.inside[0], value);
    else
        for (uint32_t k = 0; k < r.pieces; k++) {
            store_lanes((uint8_t *const *)r.address, 4, r.inside[k], &value[k]);
            for (int l = 0; l < LANES; l++)
                r.address[l] += 4;
        }
    return occupy(w, i);
}

static int run_buffer_atomic(Wave *w, const Instruction *i) {
    Reach r;
    if (is_swizzled(w, i->in[1].index))
        return fail_descriptor(w, i->in[1].index);
    if (reach(w, i, &r))
        return STOPPED;
    uint64_t inside = r.inside[registers_of(i->size) - 1];
    if (check_memory(w, r.address, i->size, inside))
        return STOPPED;
    return memory_atomic(w, i, r.address, inside, exec_of(w));
}
