/* ds_… that change elements of the LDS: atomic operations, exchanges at two places, ds_append and ds_consume.
 * In strict mode they happen at the wait, in order with the wave's other accesses. */
#pragma once
#include "atomics.h"
#include "lds.h"

static void atomic_in_lds(Wave *w, Pending *p) {
    uint8_t *place[LANES];
    uint32_t old[2][LANES];
    for (int l = 0; l < LANES; l++)
        place[l] = lds_at(w, p->place[0][l]);
    perform(p->detail, p->size, place, (const uint32_t(*)[LANES])p->value, p->mask, old);
}

static void commit_lds_atomic(Wave *w, Pending *p) {
    uint8_t *place[LANES];
    uint32_t old[2][LANES];
    for (int l = 0; l < LANES; l++)
        place[l] = lds_at(w, p->place[0][l]);
    w->worker->changes += perform(p->detail, p->size, place, (const uint32_t(*)[LANES])p->value, p->mask, old);
    if (p->instruction->flags & RETURNS)
        for (uint32_t k = 0; k < p->instruction->size / 4; k++)
            write_lanes(w, p->instruction->out.index + (int)k, old[k], p->mask);
}

/* Check the places of an operation, and take its data. Its lanes must be active. */
static int take_places(Wave *w, const Instruction *i, int places, uint64_t mask, Pending *p) {
    uint64_t aligned[LANES];
    uint32_t words = i->size / 4, kept = (i->detail & 255) == A_CONDXCHG ? ~(i->size - 1) : ~0u;
    for (int n = 0; n < places; n++)
        if (lds_places(w, &i->in[0], n ? i->offset1 : i->offset, i->size, kept, mask, p->place[n]))
            return STOPPED;
    for (int n = 0; n < places; n++) {
        for (int l = 0; l < LANES; l++)
            aligned[l] = p->place[n][l];
        if (check_aligned(w, aligned, i->size, mask))
            return STOPPED;
    }
    for (int k = 0; k < 2; k++)
        if (i->in[2 + k].kind == VECTOR)
            memcpy(p->value[(uint32_t)k * words], w->v[i->in[2 + k].index], words * LANES * 4);
    p->places = (uint8_t)places;
    p->size = (uint8_t)i->size;
    p->mask = mask;
    return NEXT;
}

/* Count and check an operation of the lanes of `mask`, and put it in its queue. */
static int finish_change(Wave *w, Pending *p, uint64_t mask) {
    const uint32_t(*place)[LANES] = (const uint32_t(*)[LANES])p->place;
    w->worker->atomics += (uint64_t)__builtin_popcountll(mask);
    count_lds(w, LDS_WRITTEN, place, p->places, p->size, mask);
    check_lds(w, UPDATES, place, p->places, p->size, mask, NULL);
    p->writes_lds = true;
    return finish(w, p);
}

/* Start an operation on one or two places of each active lane. */
static int run_change(Wave *w, const Instruction *i, int places, uint32_t detail, void (*commit)(Wave *, Pending *),
                      void (*in_lds)(Wave *, Pending *)) {
    uint64_t mask = exec_of(w);
    if (!mask)
        return occupy(w, i);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    if (take_places(w, i, places, mask, p)) {
        release(w, p);
        return STOPPED;
    }
    p->detail = detail;
    p->commit = commit;
    p->in_lds = in_lds;
    return finish_change(w, p, mask);
}

static int run_lds_atomic(Wave *w, const Instruction *i) {
    return run_change(w, i, 1, atomic_in_mode(w, i), commit_lds_atomic, atomic_in_lds);
}

/* Lane by lane, the first place before the second one. Returns how many places changed. */
static uint32_t exchange_two(Wave *w, const Pending *p, uint32_t (*old)[LANES]) {
    uint32_t words = p->size / 4u, changes = 0;
    for (uint64_t left = p->mask; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t was[2], now[2];
            memcpy(was, lds_at(w, p->place[n][l]), p->size);
            for (uint32_t k = 0; k < words; k++) {
                now[k] = p->value[n * words + k][l];
                old[n * words + k][l] = was[k];
            }
            changes += memcmp(was, now, p->size) != 0;
            memcpy(lds_at(w, p->place[n][l]), now, p->size);
        }
    }
    return changes;
}

static void exchange_in_lds(Wave *w, Pending *p) {
    uint32_t old[4][LANES];
    exchange_two(w, p, old);
}

static void commit_exchange(Wave *w, Pending *p) {
    uint32_t old[4][LANES];
    w->worker->changes += exchange_two(w, p, old);
    for (uint32_t k = 0; k < p->size / 2u; k++)
        write_lanes(w, p->instruction->out.index + (int)k, old[k], p->mask);
}

static int run_lds_exchange_two(Wave *w, const Instruction *i) {
    return run_change(w, i, 2, i->detail, commit_exchange, exchange_in_lds);
}

/* The first active lane adds or subtracts the number of active lanes. */
static uint32_t count_lanes(Wave *w, const Pending *p, uint32_t *old) {
    uint32_t now;
    uint8_t *place = lds_at(w, p->place[0][0]);
    memcpy(old, place, 4);
    now = (uint32_t)combine(p->detail, *old, (uint32_t)__builtin_popcountll(p->mask), 0);
    memcpy(place, &now, 4);
    return now != *old;
}

static void count_in_lds(Wave *w, Pending *p) {
    uint32_t old;
    count_lanes(w, p, &old);
}

static void commit_count(Wave *w, Pending *p) {
    uint32_t old, value[LANES];
    w->worker->changes += count_lanes(w, p, &old);
    for (int l = 0; l < LANES; l++)
        value[l] = old;
    write_lanes(w, p->instruction->out.index, value, p->mask);
}

/* ds_append and ds_consume: access/lds_atomics.py says why M0 must be 0. */
static int run_lds_count(Wave *w, const Instruction *i) {
    uint64_t mask = exec_of(w), first = mask & -mask;
    int lane = mask ? __builtin_ctzll(mask) : 0;
    if (!mask)
        return occupy(w, i);
    if (w->s[M0])
        return fail(w, COUNT_FAULT, -1, 0, 0);
    if (i->offset > (int64_t)w->worker->launch->lds_bytes - 4)
        return fail(w, LDS_FAULT, lane, (uint64_t)i->offset, 4);
    if (i->offset & 3)
        return fail(w, ATOMIC_FAULT, lane, (uint64_t)i->offset, 4);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    for (int l = 0; l < LANES; l++)
        p->place[0][l] = (uint32_t)i->offset;
    p->places = 1;
    p->size = 4;
    p->mask = mask;
    p->detail = i->detail;
    p->commit = commit_count;
    p->in_lds = count_in_lds;
    return finish_change(w, p, first);
}
