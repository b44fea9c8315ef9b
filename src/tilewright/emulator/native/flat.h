/* flat_…: each lane's address is in memory, in the LDS of the work-group, or in the lane's private memory.
 * They are counted as memory and as LDS accesses (`target` is the queue of the latter). On gfx9 they end in any order:
 * see access/flat.py. */
#pragma once
#include "global_memory.h"

/* The upper 32 bits of addresses that are not in memory; apertures.py has the same numbers. */
enum { SHARED_HIGH = 0x00010000, PRIVATE_HIGH = 0x00020000 };

typedef struct {
    uint64_t memory, own, lds; /* the lanes of each kind */
    uint64_t address[LANES];
    uint32_t offset[1][LANES]; /* in the LDS */
    uint8_t *place[LANES];
} Flat;

/* Where each active lane's bytes are, or a fault. */
static int flat_places(Wave *w, const Instruction *i, Flat *f) {
    int64_t inside[LANES], room = (int64_t)w->worker->launch->lds_bytes - i->size;
    uint64_t exec = exec_of(w);
    f->memory = f->own = f->lds = 0;
    lane_addresses(w, i, f->address);
    for (uint64_t left = exec; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        uint32_t high = (uint32_t)(f->address[l] >> 32);
        *(high == SHARED_HIGH ? &f->lds : high == PRIVATE_HIGH ? &f->own : &f->memory) |= 1ull << l;
        inside[l] = (int64_t)(f->address[l] & 0xffffffff);
        f->offset[0][l] = (uint32_t)inside[l];
        f->place[l] = (uint8_t *)f->address[l];
    }
    if (check_memory(w, f->address, i->size, f->memory) || private_places(w, i, inside, f->own, f->place))
        return STOPPED;
    for (uint64_t left = f->lds; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        if (inside[l] > room)
            return fail(w, LDS_FAULT, l, (uint64_t)inside[l], i->size);
        f->place[l] = lds_at(w, f->offset[0][l]);
    }
    return NEXT;
}

/* A place in a counter, without a visible effect. */
static int occupy_in(Wave *w, const Instruction *i, uint32_t queue) {
    if (!w->worker->launch->strict)
        return NEXT;
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    p->in_order = !w->worker->launch->gfx9;
    return finish_in(w, p, queue);
}

static int run_flat_load(Wave *w, const Instruction *i) {
    Flat f;
    if (flat_places(w, i, &f))
        return STOPPED;
    if (f.memory)
        count_memory(w, READ, f.address, i->size, f.memory);
    if (f.lds)
        count_lds(w, LDS_READ, (const uint32_t(*)[LANES])f.offset, 1, i->size, f.lds);
    check_access(w, READS, f.address, i->size, f.memory, NULL);
    check_lds(w, READS, (const uint32_t(*)[LANES])f.offset, 1, i->size, f.lds, NULL);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    Pending *own = f.lds ? w->queue[i->target].first : NULL;
    show_own(w, own);
    load_lanes(f.place, i->size, exec_of(w), p->value);
    hide_own(w, own);
    arrive(i, p->value);
    p->in_order = !w->worker->launch->gfx9;
    deliver(w, p, registers_of(i->size), exec_of(w));
    return occupy_in(w, i, i->target);
}

/* What goes to the LDS gets there at a wait, as with ds_write. */
static int flat_store_lds(Wave *w, const Instruction *i, const Flat *f, const uint32_t (*value)[LANES]) {
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    count_lds(w, LDS_WRITTEN, (const uint32_t(*)[LANES])f->offset, 1, i->size, f->lds);
    check_lds(w, WRITES, (const uint32_t(*)[LANES])f->offset, 1, i->size, f->lds, value);
    p->writes_lds = true;
    memcpy(p->place[0], f->offset[0], sizeof f->offset[0]);
    memcpy(p->value, value, registers_of(i->size) * sizeof *value);
    p->places = 1;
    p->size = (uint8_t)i->size;
    p->mask = f->lds;
    p->commit = p->in_lds = write_lds;
    return finish_in(w, p, i->target);
}

static int run_flat_store(Wave *w, const Instruction *i) {
    Flat f;
    uint32_t room[1][LANES];
    if (flat_places(w, i, &f))
        return STOPPED;
    if (f.memory)
        count_memory(w, WRITTEN, f.address, i->size, f.memory);
    const uint32_t(*value)[LANES] = leaving(w, i, &i->in[3], room);
    check_access(w, WRITES, f.address, i->size, f.memory, value);
    store_lanes(f.place, i->size, f.memory | f.own, value);
    if (f.lds && flat_store_lds(w, i, &f, value))
        return STOPPED;
    if (occupy_in(w, i, i->queue))
        return STOPPED;
    return f.lds ? NEXT : occupy_in(w, i, i->target);
}

/* All at issue, also on the LDS: memory and LDS accesses of one instruction have no order among them. */
static int run_flat_atomic(Wave *w, const Instruction *i) {
    Flat f;
    uint64_t exec = exec_of(w), aligned[LANES];
    if (flat_places(w, i, &f))
        return STOPPED;
    for (int l = 0; l < LANES; l++)
        aligned[l] = f.lds >> l & 1 ? f.offset[0][l] : f.own >> l & 1 ? (uint64_t)f.place[l] : f.address[l];
    if (check_aligned(w, aligned, i->size, exec))
        return STOPPED;
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    memset(p->value, 0, 2 * sizeof *p->value);
    check_access(w, UPDATES, f.address, i->size, f.memory, NULL);
    check_lds(w, UPDATES, (const uint32_t(*)[LANES])f.offset, 1, i->size, f.lds, NULL);
    w->worker->changes += perform(atomic_in_mode(w, i), i->size, f.place,
                                  (const uint32_t(*)[LANES]) & w->v[i->in[3].index], exec, p->value);
    uint64_t in_memory = i->size * (uint64_t)__builtin_popcountll(f.memory);
    w->worker->atomics += (uint64_t)__builtin_popcountll(exec);
    w->worker->bytes[WRITTEN] += in_memory;
    w->worker->bytes[READ] += i->flags & RETURNS ? in_memory : 0;
    w->worker->bytes[LDS_WRITTEN] += i->size * (uint64_t)__builtin_popcountll(f.lds);
    p->in_order = !w->worker->launch->gfx9;
    if (i->flags & RETURNS)
        deliver(w, p, i->size / 4, exec);
    else
        finish(w, p);
    return occupy_in(w, i, i->target);
}
