/* The checks of the sanitizer: reads of bytes that nobody wrote, races, and barriers that not all lanes reach.
 *
 * Each dword of memory and LDS has a cell: its last write and two reads by different waves. Two accesses of which one
 * writes are a race if nothing orders them:
 * - Waves of a work-group are ordered by barriers: an access before a wave's n-th signal is ordered before all that
 *   another wave does after its n-th wait. An LDS write that is under way at the signal counts as one after it.
 * - Work-groups are ordered by release and acquire: what a wave wrote before it waited for its stores (and wrote its
 *   cache back, where the GPU needs it) is known to a wave that read a later store of it and then invalidated its
 *   own cache.
 * - Atomic accesses do not race with each other, and neither do loads and stores that bypass the caches of a CU.
 * Where the code does not tell, accesses count as ordered: a report must be true. */
#pragma once
#include "order.h"

HOT uint32_t writes_as(const Access *access, bool writes) { return access->flags & ATOMIC ? 2 : writes; }

/* The bytes of one lane's access. `alone`: no other lane takes part. */
typedef struct {
    uint64_t address; /* or offset in the LDS */
    uint32_t size;
    bool in_lds, alone;
} Spot;

COLD void report_race(Wave *w, const Access *before, bool wrote, const Access *now, bool writes, const Spot *spot) {
    struct Finding *f = find_finding(w->worker->launch, RACE, now->instruction, before->instruction);
    if (!f)
        return;
    f->in_lds = spot->in_lds;
    f->block = w->block->number, f->other_block = (int64_t)before->block - 1;
    f->wave = (int32_t)w->number, f->other_wave = before->wave;
    f->lane = now->lane, f->other_lane = before->lane;
    f->writes = writes_as(now, writes), f->other_writes = writes_as(before, wrote);
    f->flags = before->flags;
    f->size = spot->size;
    f->address = spot->address;
}

static void keep_read(const Wave *w, Cell *cell, const Access *now, bool in_lds) {
    Access *a = &cell->read[0], *b = &cell->read[1];
    if (!is_valid(a, w, in_lds) || (a->block == now->block && a->wave == now->wave)) {
        uint32_t mask = is_valid(a, w, in_lds) && a->signals == now->signals ? a->mask : 0;
        *a = *now;
        a->mask |= mask;
    } else if (!is_valid(b, w, in_lds) || b->block == now->block) {
        uint32_t mask = is_valid(b, w, in_lds) && b->wave == now->wave && b->signals == now->signals ? b->mask : 0;
        *b = *now;
        b->mask |= mask;
    } else if (a->block == now->block)
        *a = *now;
    else
        *b = *now;
}

static void read_cell(Wave *w, Cell *cell, const Access *now, const Spot *spot) {
    bool in_lds = spot->in_lds;
    const Access *write = &cell->write;
    if (is_valid(write, w, in_lds)) {
        Access seen = *now;
        if (write->flags & SYNCHRONIZES && in_lds && spot->alone)
            seen.flags |= SYNCHRONIZES; /* a single lane that polls: atomic loads of the LDS look like others */
        if (conflicts(w, write, &seen, in_lds))
            report_race(w, write, true, now, false, spot);
        if (write->block != now->block || write->wave != now->wave)
            receive_store(w, write, spot->address / 4, in_lds);
    }
    keep_read(w, cell, now, in_lds);
}

/* `same`: the bytes had this value already, so it does not matter who was first. */
static void write_cell(Wave *w, Cell *cell, const Access *now, bool same, const Spot *spot) {
    bool in_lds = spot->in_lds;
    Access next = *now, *write = &cell->write;
    bool valid = is_valid(write, w, in_lds);
    if (valid && write->flags & SYNCHRONIZES && (spot->alone || now->flags & ATOMIC))
        next.flags |= SYNCHRONIZES; /* a flag or a lock, which a single lane stores to */
    if (now->flags & ATOMIC)
        next.flags |= SYNCHRONIZES;
    if (!same && conflicts(w, write, &next, in_lds))
        report_race(w, write, true, now, true, spot);
    for (int k = 0; k < 2; k++)
        if (!same && conflicts(w, &cell->read[k], &next, in_lds))
            report_race(w, &cell->read[k], false, now, true, spot);
    if (now->flags & ATOMIC && valid && (write->block != now->block || write->wave != now->wave))
        receive_store(w, write, spot->address / 4, in_lds);
    if (next.mask == 15)
        cell->read[0].block = cell->read[1].block = 0;
    else if (valid && write->block == now->block && write->wave == now->wave && write->signals == now->signals)
        next.mask |= write->mask;
    /* A plain store stays when its own wave updates it next: other waves may race with the store. */
    bool own = valid && write->block == now->block && write->wave == now->wave;
    bool hides = now->flags & ATOMIC && own && !synchronizes(write);
    if (!hides || (in_lds && write->signals != now->signals))
        *write = next;
    if (now->flags & ATOMIC && !in_lds)
        keep_update(w, &next, spot->address / 4);
}

COLD void report_uninitialized(Wave *w, int lane, const Spot *spot) {
    struct Finding *f = find_finding(w->worker->launch, UNINITIALIZED_READ, w->pc, 0);
    if (!f)
        return;
    f->in_lds = spot->in_lds;
    f->block = w->block->number, f->wave = (int32_t)w->number, f->lane = lane;
    f->other_block = f->other_wave = f->other_lane = -1;
    f->size = spot->size, f->address = spot->address;
}

HOT bool all_defined(const uint8_t *defined, uint32_t size) {
    for (uint32_t k = 0; k < size; k++)
        if (!defined[k])
            return false;
    return true;
}

enum { READS, WRITES, UPDATES };

/* One lane's access. `value` are the registers that it stores, or NULL. */
static void check_lane(Wave *w, int kind, const struct Shadow *shadow, const uint8_t *bytes, uint64_t offset, int lane,
                       const Spot *spot, const uint32_t (*value)[LANES]) {
    uint32_t checks = checks_of(w), size = spot->size;
    bool in_lds = spot->in_lds;
    if (checks & CHECK_UNINITIALIZED && shadow->defined) {
        if (kind != WRITES && !all_defined(shadow->defined + offset, size))
            report_uninitialized(w, lane, spot);
        memset(shadow->defined + offset, 1, size); /* once is enough */
    }
    Cell *cells = shadow->cells;
    if (!(checks & CHECK_RACES) || !cells)
        return;
    bool bypasses = w->worker->launch->code[w->pc].scope & COHERENT && !in_lds;
    uint32_t flags = (kind == UPDATES ? ATOMIC : 0) | (bypasses ? BYPASSES : 0);
    Access now = make_access(w, lane, flags);
    for (uint64_t at = offset; at < offset + size;) {
        uint64_t cell = at / 4, end = cell * 4 + 4 < offset + size ? cell * 4 + 4 : offset + size;
        now.mask = ((1u << (end - at)) - 1) << at % 4 & 15;
        if (kind == READS)
            read_cell(w, &cells[cell], &now, spot);
        else {
            bool same = false;
            if (value && kind == WRITES) {
                uint32_t word = value[(at - offset) / 4][lane];
                same = (at - offset) % 4 == 0 && !memcmp(bytes + at, &word, end - at);
            }
            write_cell(w, &cells[cell], &now, same, spot);
        }
        at = end;
    }
}

/* An access to memory by the lanes of `mask`, all in allocations, before it takes place. */
static bool find_holder(Worker *worker, uint64_t address, uint64_t size);

COLD void check_lanes(Wave *w, int kind, const uint64_t *address, uint32_t size, uint64_t mask,
                      const uint32_t (*value)[LANES]) {
    Worker *worker = w->worker;
    Launch *g = worker->launch;
    bool alone = !(mask & (mask - 1));
    for (uint64_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        if (!(address[l] >= worker->recent_start && address[l] + size <= worker->recent_end && worker->recent_end))
            if (!find_holder(worker, address[l], size))
                continue;
        const struct Shadow *shadow = &g->shadows[worker->recent];
        uint64_t base = worker->recent_start;
        Spot spot = {address[l], size, false, alone};
        check_lane(w, kind, shadow, (const uint8_t *)base, address[l] - base, l, &spot, value);
    }
}

HOT void check_access(Wave *w, int kind, const uint64_t *address, uint32_t size, uint64_t mask,
                      const uint32_t (*value)[LANES]) {
    if (__builtin_expect(checks_of(w) != 0, 0) && mask) {
        w->stores += kind == WRITES;
        w->worker->changes += kind == WRITES;
        if (checks_of(w) & (CHECK_UNINITIALIZED | CHECK_RACES))
            check_lanes(w, kind, address, size, mask, value);
    }
}

/* Compilers widen scalar loads to whole dwords, and three of them to four: bytes behind those that were written are
 * not used. A load that finds no written byte at its start is an error. */
COLD void check_scalar(Wave *w, uint64_t address, uint32_t size) {
    Launch *g = w->worker->launch;
    if (!find_holder(w->worker, address, size))
        return;
    uint64_t base = w->worker->recent_start;
    const struct Shadow *shadow = &g->shadows[w->worker->recent];
    uint32_t used = size;
    Spot spot = {address, size, false, false};
    if (shadow->defined && g->checks & CHECK_UNINITIALIZED) {
        while (used > 0 && !shadow->defined[address - base + used - 1])
            used--;
        if (!used)
            report_uninitialized(w, -1, &spot);
        used = used ? (used + 3) / 4 * 4 : size;
        used = used < size ? used : size;
    }
    if (!(g->checks & CHECK_RACES) || !shadow->cells)
        return;
    Access now = make_access(w, 0, 0);
    for (uint32_t k = 0; k < used; k += 4) {
        spot.address = address + k;
        read_cell(w, &shadow->cells[(address - base + k) / 4], &now, &spot);
    }
}

/* An access to the LDS at one or two places by each lane of `mask`, before it takes place. */
COLD void check_places(Wave *w, int kind, const uint32_t place[][LANES], int places, uint32_t size, uint64_t mask,
                       const uint32_t (*value)[LANES]) {
    const Block *b = w->block;
    struct Shadow shadow = {b->cells, b->defined};
    bool alone = !(mask & (mask - 1)) && places == 1;
    uint32_t words = size < 4 ? 1 : size / 4;
    for (int n = 0; n < places; n++)
        for (uint64_t left = mask; left; left &= left - 1) {
            int l = __builtin_ctzll(left);
            Spot spot = {place[n][l], size, true, alone};
            check_lane(w, kind, &shadow, b->lds, place[n][l], l, &spot, value ? value + (uint32_t)n * words : NULL);
        }
}

HOT void check_lds(Wave *w, int kind, const uint32_t place[][LANES], int places, uint32_t size, uint64_t mask,
                   const uint32_t (*value)[LANES]) {
    if (__builtin_expect(checks_of(w) != 0, 0)) {
        w->worker->changes += kind == WRITES;
        if (checks_of(w) & (CHECK_UNINITIALIZED | CHECK_RACES))
            check_places(w, kind, place, places, size, mask, value);
    }
}
