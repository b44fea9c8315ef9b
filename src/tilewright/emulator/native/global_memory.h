/* global_… and scratch_…: memory by 64-bit addresses, and the private memory of lanes. */
#pragma once
#include "atomics.h"
#include "lds.h"
#include "memory.h"

/* A pair of vector registers, or a scalar pair and an unsigned vector register or 4 times the lane; and a signed
 * number. */
static void lane_addresses(const Wave *w, const Instruction *i, uint64_t *address) {
    const uint32_t *low = w->v[i->in[0].index];
    if (i->in[0].kind == NOTHING) {
        for (int l = 0; l < LANES; l++)
            address[l] = scalar_pair(w, i->in[1].index) + (uint64_t)i->offset + 4 * (uint64_t)l;
        return;
    }
    if (i->in[1].kind == SCALAR) {
        uint64_t base = scalar_pair(w, i->in[1].index) + (uint64_t)i->offset;
        for (int l = 0; l < LANES; l++)
            address[l] = base + low[l];
        return;
    }
    const uint32_t *high = w->v[i->in[0].index + 1];
    for (int l = 0; l < LANES; l++)
        address[l] = ((uint64_t)high[l] << 32 | low[l]) + (uint64_t)i->offset;
}

/* 8 lanes loaded 8 elements each; every lane gets one from each of 8 (see access/transpose.py). */
static void transpose_loaded(uint32_t (*value)[LANES], uint32_t bits) {
    uint32_t out[4][LANES] = {{0}};
    for (uint32_t l = 0; l < 32; l++)
        for (uint32_t k = 0; k < 8; k++) {
            uint32_t from = bits == 16 ? (l & 24) + k : (l & 16) + (l >> 1 & 4) + k % 4 + k / 4 * 8, at = l % 8 * bits;
            uint32_t element = value[at / 32][from] >> at % 32 & ((1u << bits) - 1);
            out[k * bits / 32][l] |= element << k * bits % 32;
        }
    memcpy(value, out, bits / 4 * sizeof *value);
}

/* `detail` is the size of an element for transposing loads, else 0. */
static int run_global_load(Wave *w, const Instruction *i) {
    uint64_t address[LANES], mask = exec_of(w);
    if (!mask)
        return occupy(w, i);
    if (i->detail && mask != w->all)
        return fail(w, INACTIVE_FAULT, -1, 0, 0);
    lane_addresses(w, i, address);
    if (check_memory(w, address, i->size, mask))
        return STOPPED;
    count_memory(w, READ, address, i->size, mask);
    check_access(w, READS, address, i->size, mask, NULL);
    if (!i->detail && loads_directly(w, i)) {
        load_lanes((uint8_t *const *)address, i->size, mask, &w->v[i->out.index]);
        return NEXT;
    }
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    load_lanes((uint8_t *const *)address, i->size, mask, p->value);
    if (i->detail)
        transpose_loaded(p->value, i->detail);
    arrive(i, p->value);
    return i->flags & LDS_DMA ? send_to_lds(w, p) : deliver(w, p, registers_of(i->size), mask);
}

static int run_global_store(Wave *w, const Instruction *i) {
    uint64_t address[LANES], mask = exec_of(w);
    if (!mask)
        return occupy(w, i);
    lane_addresses(w, i, address);
    if (check_memory(w, address, i->size, mask))
        return STOPPED;
    count_memory(w, WRITTEN, address, i->size, mask);
    uint32_t room[1][LANES];
    const uint32_t(*value)[LANES] = leaving(w, i, &i->in[3], room);
    check_access(w, WRITES, address, i->size, mask, value);
    store_lanes((uint8_t *const *)address, i->size, mask, value);
    return occupy(w, i);
}

static int run_global_atomic(Wave *w, const Instruction *i) {
    uint64_t address[LANES], mask = exec_of(w);
    if (!mask)
        return occupy(w, i);
    lane_addresses(w, i, address);
    if (check_memory(w, address, i->size, mask))
        return STOPPED;
    return memory_atomic(w, i, address, mask, mask);
}

/* Where the bytes at each lane's offset are. */
static int private_places(Wave *w, const Instruction *i, const int64_t *offset, uint64_t mask, uint8_t **place) {
    int64_t own = w->worker->launch->scratch_bytes;
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1))
            continue;
        if (offset[l] < 0 || offset[l] > own - (int64_t)i->size)
            return fail(w, SCRATCH_FAULT, l, (uint64_t)offset[l], i->size);
        place[l] = w->scratch + l * own + offset[l];
    }
    return NEXT;
}

static int private_load(Wave *w, const Instruction *i, const int64_t *offset) {
    uint64_t mask = exec_of(w);
    uint8_t *place[LANES];
    if (!mask)
        return occupy(w, i);
    if (private_places(w, i, offset, mask, place))
        return STOPPED;
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    load_lanes(place, i->size, mask, p->value);
    arrive(i, p->value);
    return i->flags & LDS_DMA ? send_to_lds(w, p) : deliver(w, p, registers_of(i->size), mask);
}

static int private_store(Wave *w, const Instruction *i, const int64_t *offset) {
    uint64_t mask = exec_of(w);
    uint8_t *place[LANES];
    uint32_t room[1][LANES];
    if (mask) {
        if (private_places(w, i, offset, mask, place))
            return STOPPED;
        w->worker->changes++;
        store_lanes(place, i->size, mask, leaving(w, i, &i->in[3], room));
    }
    return occupy(w, i);
}

/* A vector register, a scalar register, both or none, and a number; all are signed. */
static void scratch_offsets(const Wave *w, const Instruction *i, int64_t *offset) {
    int64_t common = i->offset + (i->in[1].kind == SCALAR ? (int32_t)w->s[i->in[1].index] : 0);
    for (int l = 0; l < LANES; l++)
        offset[l] = common + (i->in[0].kind == VECTOR ? (int32_t)w->v[i->in[0].index][l] : 0);
}

static int run_scratch_load(Wave *w, const Instruction *i) {
    int64_t offset[LANES];
    scratch_offsets(w, i, offset);
    return private_load(w, i, offset);
}

static int run_scratch_store(Wave *w, const Instruction *i) {
    int64_t offset[LANES];
    scratch_offsets(w, i, offset);
    return private_store(w, i, offset);
}
