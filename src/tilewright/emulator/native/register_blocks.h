/* …_load_block and …_store_block: up to 32 registers, those whose bits are set in M0. Register k belongs to the dword k
 * behind the address of a lane. */
#pragma once
#include "global_memory.h"

enum { BLOCK_REGISTERS = 32 };

/* The places of dword k, or a fault. `address` are addresses in memory, else offsets in private memory. */
static int block_places(Wave *w, const Instruction *i, const uint64_t *address, bool in_memory, uint32_t k, int kind,
                        uint8_t **place) {
    uint64_t mask = exec_of(w), here[LANES];
    for (int l = 0; l < LANES; l++)
        here[l] = address[l] + 4 * k;
    if (!in_memory)
        return private_places(w, i, (const int64_t *)here, mask, place);
    if (check_memory(w, here, i->size, mask))
        return STOPPED;
    count_memory(w, kind, here, i->size, mask);
    memcpy(place, here, sizeof here);
    return NEXT;
}

static int load_block(Wave *w, const Instruction *i, const uint64_t *address, bool in_memory) {
    uint8_t *place[LANES];
    uint64_t mask = exec_of(w);
    uint32_t selected = w->s[M0];
    if (!mask)
        return occupy(w, i);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    for (uint32_t k = 0; k < BLOCK_REGISTERS; k++) {
        if (!(selected >> k & 1))
            continue;
        if (block_places(w, i, address, in_memory, k, READ, place)) {
            release(w, p);
            return STOPPED;
        }
        if (in_memory)
            check_access(w, READS, (const uint64_t *)place, i->size, mask, NULL);
        load_lanes(place, i->size, mask, &p->value[k]);
    }
    p->left_out = ~selected;
    return deliver(w, p, BLOCK_REGISTERS, mask);
}

static int store_block(Wave *w, const Instruction *i, const uint64_t *address, bool in_memory) {
    uint8_t *place[LANES];
    uint64_t mask = exec_of(w);
    for (uint32_t k = 0; mask && k < BLOCK_REGISTERS; k++) {
        if (!(w->s[M0] >> k & 1))
            continue;
        const uint32_t(*value)[LANES] = (const uint32_t(*)[LANES])&w->v[i->in[3].index + (int)k];
        if (block_places(w, i, address, in_memory, k, WRITTEN, place))
            return STOPPED;
        if (in_memory)
            check_access(w, WRITES, (const uint64_t *)place, i->size, mask, value);
        w->worker->changes += !in_memory;
        store_lanes(place, i->size, mask, value);
    }
    return occupy(w, i);
}

static int run_global_load_block(Wave *w, const Instruction *i) {
    uint64_t address[LANES];
    lane_addresses(w, i, address);
    return load_block(w, i, address, true);
}

static int run_global_store_block(Wave *w, const Instruction *i) {
    uint64_t address[LANES];
    lane_addresses(w, i, address);
    return store_block(w, i, address, true);
}

static int run_scratch_load_block(Wave *w, const Instruction *i) {
    int64_t offset[LANES];
    scratch_offsets(w, i, offset);
    return load_block(w, i, (const uint64_t *)offset, false);
}

static int run_scratch_store_block(Wave *w, const Instruction *i) {
    int64_t offset[LANES];
    scratch_offsets(w, i, offset);
    return store_block(w, i, (const uint64_t *)offset, false);
}
