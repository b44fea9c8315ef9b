/* ds_…: the LDS of the work-group, and moving values between lanes through its hardware. */
#pragma once
#include "atomics.h"
#include "memory.h"

HOT uint8_t *lds_at(const Wave *w, uint32_t place) { return w->block->lds + place; }

/* Addresses of an instruction without a register of addresses: one lane after the other, from M0 on. */
COLD const uint32_t *lanes_in_order(const Wave *w, uint32_t size, uint32_t *room) {
    for (uint32_t l = 0; l < LANES; l++)
        room[l] = (w->s[M0] & 0xffff) + size * l;
    return room;
}

/* Offsets of the lanes, which must be inside the LDS. They are computed in 32 bits. */
static int lds_places(Wave *w, const Operand *from, int64_t offset, uint32_t size, uint64_t mask, uint32_t *place) {
    int64_t room = (int64_t)w->worker->launch->lds_bytes - size;
    uint32_t ordered[LANES];
    const uint32_t *address = from->kind == VECTOR ? w->v[from->index] : lanes_in_order(w, size, ordered);
    bool outside = false;
    for (int l = 0; l < LANES; l++) {
        place[l] = address[l] + (uint32_t)offset;
        outside |= (mask >> l & 1) & (place[l] > room);
    }
    for (int l = 0; outside && l < LANES; l++)
        if ((mask >> l & 1) && place[l] > room)
            return fail(w, LDS_FAULT, l, place[l], size);
    return NEXT;
}

static void write_lds(Wave *w, Pending *p) {
    uint32_t words = registers_of(p->size);
    if (p->places == 1) {
        uint8_t *to[LANES];
        for (int l = 0; l < LANES; l++)
            to[l] = lds_at(w, p->place[0][l]);
        store_lanes(to, p->size, p->mask, (const uint32_t(*)[LANES])p->value);
        return;
    }
    for (uint64_t left = p->mask; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        for (uint32_t n = 0; n < p->places; n++) {
            uint32_t t[4];
            for (uint32_t k = 0; k < words; k++)
                t[k] = p->value[n * words + k][l];
            memcpy(lds_at(w, p->place[n][l]), t, p->size);
        }
    }
}

static void keep_before(Wave *w, Pending *p) {
    uint32_t words = registers_of(p->size);
    for (int l = 0; l < LANES; l++)
        for (uint32_t n = 0; n < p->places && p->mask >> l & 1; n++) {
            uint32_t t[4];
            memcpy(t, lds_at(w, p->place[n][l]), p->size);
            for (uint32_t k = 0; k < words; k++)
                p->before[n * words + k][l] = t[k];
        }
}

static void bring_back(Wave *w, const Pending *p) {
    uint32_t words = registers_of(p->size);
    for (int l = LANES - 1; l >= 0; l--)
        for (int n = p->places - 1; n >= 0 && p->mask >> l & 1; n--) {
            uint32_t t[4];
            for (uint32_t k = 0; k < words; k++)
                t[k] = p->before[(uint32_t)n * words + k][l];
            memcpy(lds_at(w, p->place[n][l]), t, p->size);
        }
}

/* Let the wave see its own writes, of which others do not know yet; and hide them again, the last one first. */
static void show_own(Wave *w, Pending *p) {
    for (; p; p = p->next)
        if (p->in_lds) {
            keep_before(w, p);
            p->in_lds(w, p);
        }
}

static void hide_own(Wave *w, Pending *p) {
    if (!p)
        return;
    hide_own(w, p->next);
    if (p->in_lds)
        bring_back(w, p);
}

/* 16 lanes hold a matrix of 16 columns row by row; each lane gets a column. `bits` is the size of an element. */
static void transpose(uint32_t (*value)[LANES], uint32_t size, uint32_t bits) {
    uint32_t per_lane = 8 * size / bits, words = size / 4;
    for (int first = 0; first < LANES; first += 16) {
        uint64_t in[16][2], out[16][2] = {{0}};
        for (int l = 0; l < 16; l++) {
            in[l][0] = value[0][first + l] | (uint64_t)value[1][first + l] << 32;
            in[l][1] = words > 2 ? value[2][first + l] : 0;
        }
        for (uint32_t n = 0; n < 16 * per_lane; n++) {
            uint32_t from = n % per_lane * bits, to = n / 16 * bits;
            const uint64_t *source = in[n / per_lane];
            uint64_t element = source[from / 64] >> from % 64;
            if (from / 64 != (from + bits - 1) / 64)
                element |= source[1] << (64 - from);
            element &= (1ull << bits) - 1;
            out[n % 16][to / 64] |= element << to % 64;
            if (to / 64 != (to + bits - 1) / 64)
                out[n % 16][1] |= element >> (64 - to);
        }
        for (int l = 0; l < 16; l++)
            for (uint32_t k = 0; k < words; k++)
                value[k][first + l] = (uint32_t)(out[l][k / 2] >> 32 * (k % 2));
    }
}

/* One or two places per lane; `detail` is the size of an element for transposing reads, else 0. */
static int run_lds_read(Wave *w, const Instruction *i) {
    uint64_t mask = exec_of(w);
    uint32_t place[2][LANES], words = registers_of(i->size);
    int places = i->flags & TWO ? 2 : 1;
    if (!mask)
        return occupy(w, i);
    if (i->detail && mask != w->all)
        return fail(w, INACTIVE_FAULT, -1, 0, 0);
    for (int n = 0; n < places; n++)
        if (lds_places(w, &i->in[0], n ? i->offset1 : i->offset, i->size, mask, place[n]))
            return STOPPED;
    count_lds(w, LDS_READ, (const uint32_t(*)[LANES])place, places, i->size, mask);
    check_lds(w, READS, (const uint32_t(*)[LANES])place, places, i->size, mask, NULL);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    Pending *own = w->queue[i->queue].first;
    show_own(w, own);
    for (int n = 0; n < places; n++) {
        uint8_t *from[LANES];
        for (int l = 0; l < LANES; l++)
            from[l] = lds_at(w, place[n][l]);
        load_lanes(from, i->size, mask, &p->value[(uint32_t)n * words]);
    }
    hide_own(w, own);
    if (i->detail)
        transpose(p->value, i->size, i->detail);
    arrive(i, p->value);
    return deliver(w, p, words * (uint32_t)places, mask);
}

static int run_lds_write(Wave *w, const Instruction *i) {
    uint64_t mask = exec_of(w);
    uint32_t words = registers_of(i->size);
    int places = i->flags & TWO ? 2 : 1;
    if (!mask)
        return occupy(w, i);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    for (int n = 0; n < places; n++) {
        if (lds_places(w, &i->in[0], n ? i->offset1 : i->offset, i->size, mask, p->place[n])) {
            release(w, p);
            return STOPPED;
        }
        uint32_t room[1][LANES];
        memcpy(p->value[(uint32_t)n * words], leaving(w, i, &i->in[2 + n], room), words * LANES * 4);
    }
    count_lds(w, LDS_WRITTEN, (const uint32_t(*)[LANES])p->place, places, i->size, mask);
    check_lds(w, WRITES, (const uint32_t(*)[LANES])p->place, places, i->size, mask, (const uint32_t(*)[LANES])p->value);
    p->writes_lds = true;
    p->places = (uint8_t)places;
    p->size = (uint8_t)i->size;
    p->mask = mask;
    p->commit = p->in_lds = write_lds;
    return finish(w, p);
}

/* Loaded elements, to M0 + offset + lane · size. The wave's own reads need not see them before a wait for the load. */
static int send_to_lds(Wave *w, Pending *p) {
    const Instruction *i = p->instruction;
    const Launch *g = w->worker->launch;
    uint32_t size = i->size < 4 ? 4 : i->size;
    uint64_t mask = exec_of(w);
    int64_t first = (int64_t)(w->s[M0] & g->dma_mask) + i->offset;
    if (!mask)
        return finish(w, p);
    for (int l = 0; l < LANES; l++) {
        int64_t at = first + l * (int64_t)size;
        p->place[0][l] = (uint32_t)at;
        if ((mask >> l & 1) && (at < 0 || at > (int64_t)g->lds_bytes - size)) {
            release(w, p);
            return fail(w, LDS_FAULT, l, (uint64_t)at, size);
        }
    }
    count_lds(w, LDS_WRITTEN, (const uint32_t(*)[LANES])p->place, 1, size, mask);
    check_lds(w, WRITES, (const uint32_t(*)[LANES])p->place, 1, size, mask, (const uint32_t(*)[LANES])p->value);
    p->writes_lds = true;
    p->places = 1;
    p->size = (uint8_t)size;
    p->mask = mask;
    p->commit = write_lds;
    if (g->strict && g->turned) { /* at the first moment that is possible: see copy_to_lds of effects.py */
        p->commit(w, p);
        p->commit = NULL;
    }
    return finish(w, p);
}

static void atomic_in_lds(Wave *w, Pending *p) {
    uint8_t *place[LANES];
    uint32_t old[2][LANES];
    for (int l = 0; l < LANES; l++)
        place[l] = lds_at(w, p->place[0][l]);
    perform(p->instruction, place, (const uint32_t(*)[LANES])p->value, p->mask, old);
}

static void commit_lds_atomic(Wave *w, Pending *p) {
    uint8_t *place[LANES];
    uint32_t old[2][LANES];
    for (int l = 0; l < LANES; l++)
        place[l] = lds_at(w, p->place[0][l]);
    w->worker->changes += perform(p->instruction, place, (const uint32_t(*)[LANES])p->value, p->mask, old);
    if (p->instruction->flags & RETURNS)
        for (uint32_t k = 0; k < p->instruction->size / 4; k++)
            write_lanes(w, p->instruction->out.index + (int)k, old[k], p->mask);
}

/* In strict mode it happens at the wait, in order with the wave's other accesses. */
static int run_lds_atomic(Wave *w, const Instruction *i) {
    uint64_t mask = exec_of(w), aligned[LANES];
    uint32_t words = i->size / 4;
    if (!mask)
        return occupy(w, i);
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    if (lds_places(w, &i->in[0], i->offset, i->size, mask, p->place[0])) {
        release(w, p);
        return STOPPED;
    }
    for (int l = 0; l < LANES; l++)
        aligned[l] = p->place[0][l];
    if (check_aligned(w, aligned, i->size, mask)) {
        release(w, p);
        return STOPPED;
    }
    for (int k = 0; k < 2; k++)
        if (i->in[2 + k].kind == VECTOR)
            memcpy(p->value[(uint32_t)k * words], w->v[i->in[2 + k].index], words * LANES * 4);
    w->worker->atomics += (uint64_t)__builtin_popcountll(mask);
    count_lds(w, LDS_WRITTEN, (const uint32_t(*)[LANES])p->place, 1, i->size, mask);
    check_lds(w, UPDATES, (const uint32_t(*)[LANES])p->place, 1, i->size, mask, NULL);
    p->writes_lds = true;
    p->places = 1;
    p->size = (uint8_t)i->size;
    p->mask = mask;
    p->commit = commit_lds_atomic;
    p->in_lds = atomic_in_lds;
    return finish(w, p);
}

/* What lanes give to others: 0 from those that are not active. */
static void given(const Wave *w, int register_, uint32_t *value) {
    uint64_t exec = exec_of(w);
    for (int l = 0; l < LANES; l++)
        value[l] = exec >> l & 1 ? w->v[register_][l] : 0;
}

static int run_bpermute(Wave *w, const Instruction *i) {
    Pending *p = new_pending(w, i);
    uint32_t value[LANES], lanes = w->worker->launch->lanes;
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    given(w, i->in[2].index, value);
    for (int l = 0; l < LANES; l++)
        p->value[0][l] = value[(w->v[i->in[0].index][l] + (uint32_t)i->offset) >> 2 & (lanes - 1)];
    return deliver(w, p, 1, exec_of(w));
}

static int run_permute(Wave *w, const Instruction *i) {
    Pending *p = new_pending(w, i);
    uint32_t lanes = w->worker->launch->lanes;
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    memset(p->value[0], 0, sizeof p->value[0]);
    for (uint64_t left = exec_of(w); left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        p->value[0][(w->v[i->in[0].index][l] + (uint32_t)i->offset) >> 2 & (lanes - 1)] = w->v[i->in[2].index][l];
    }
    return deliver(w, p, 1, exec_of(w));
}

static int run_swizzle(Wave *w, const Instruction *i) {
    Pending *p = new_pending(w, i);
    const uint8_t *from = w->worker->launch->permutations[i->target].from;
    uint32_t value[LANES];
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    given(w, i->in[2].index, value);
    for (int l = 0; l < LANES; l++)
        p->value[0][l] = value[from[l]];
    return deliver(w, p, 1, exec_of(w));
}
