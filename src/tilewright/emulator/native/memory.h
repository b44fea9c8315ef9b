/* Memory: addresses of the device are pointers of this process. Every access is checked against the allocations. */
#pragma once
#include "counters.h"
#include "shadow.h"
#include "waits.h"

/* Whether one allocation holds the bytes. Remembers it: most accesses go where the last one went. */
static bool find_holder(Worker *worker, uint64_t address, uint64_t size) {
    const Launch *g = worker->launch;
    uint64_t low = 0, high = g->range_count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (g->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || address + size > g->ranges[low - 1].end || address + size < address)
        return false;
    worker->recent = low - 1;
    worker->recent_start = g->ranges[low - 1].start;
    worker->recent_end = g->ranges[low - 1].end;
    return true;
}

HOT bool held(Worker *worker, uint64_t address, uint64_t size) {
    if (address >= worker->recent_start && address + size <= worker->recent_end && address + size > address)
        return true;
    return find_holder(worker, address, size);
}

/* The first lane of `mask` whose bytes no allocation holds; -1 when all are held. */
static int first_outside(Wave *w, const uint64_t *address, uint32_t size, uint64_t mask) {
    Worker *worker = w->worker;
    uint64_t low = ~0ull, high = 0;
    EACH_LANE(w, l) {
        bool taken = mask >> l & 1;
        low = taken && address[l] < low ? address[l] : low;
        high = taken && address[l] > high ? address[l] : high;
    }
    if (low >= worker->recent_start && high <= worker->recent_end - size && worker->recent_end)
        return -1;
    for (uint64_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        if (!held(worker, address[l], size))
            return l;
    }
    return -1;
}

static int check_memory(Wave *w, const uint64_t *address, uint32_t size, uint64_t mask) {
    int lane = first_outside(w, address, size, mask);
    return lane < 0 ? NEXT : fail(w, MEMORY_FAULT, lane, address[lane], size);
}

/* Whether all lanes are active, of 32 or of 64, and the places of neighbours are `step` bytes apart. */
static bool are_apart(uint8_t *const *place, uint64_t step, uint64_t mask) {
    if ((mask != ~0ull && mask != 0xffffffffull) || (uint64_t)(place[1] - place[0]) != step)
        return false;
    uint64_t wrong = 0;
    for (int half = 0; half < LANES && mask >> half; half += 32)
        for (int l = half; l < half + 32; l++)
            wrong |= (uint64_t)place[l] - (uint64_t)place[0] - step * (uint64_t)l;
    return !wrong;
}

/* Copy an element into lane l of the registers `to`; elements of less than 4 bytes are extended with zeros. Lanes whose
 * elements follow each other are copied 32 at a time. */
#define LOAD_LANES(words) \
    if (are_apart(from, 4 * words, mask)) { \
        for (int half = 0; half < LANES && mask >> half; half += 32) { \
            uint32_t t[32][words]; \
            memcpy(t, from[half], sizeof t); \
            for (int l = 0; l < 32; l++) \
                for (int k = 0; k < words; k++) \
                    to[k][half + l] = t[l][k]; \
        } \
        return; \
    } \
    for (uint64_t left = mask; left; left &= left - 1) { \
        int l = __builtin_ctzll(left); \
        uint32_t t[words]; \
        memcpy(t, from[l], sizeof t); \
        for (int k = 0; k < words; k++) \
            to[k][l] = t[k]; \
    }

static void load_lanes(uint8_t *const *from, uint32_t size, uint64_t mask, uint32_t (*to)[LANES]) {
    switch (size) {
    case 4: LOAD_LANES(1) return;
    case 8: LOAD_LANES(2) return;
    case 12: LOAD_LANES(3) return;
    case 16: LOAD_LANES(4) return;
    default:
        for (uint64_t left = mask; left; left &= left - 1) {
            int l = __builtin_ctzll(left);
            uint16_t word = *from[l];
            if (size == 2)
                memcpy(&word, from[l], 2);
            to[0][l] = word;
        }
    }
}

#define STORE_LANES(words) \
    if (are_apart(to, 4 * words, mask)) { \
        for (int half = 0; half < LANES && mask >> half; half += 32) { \
            uint32_t t[32][words]; \
            for (int l = 0; l < 32; l++) \
                for (int k = 0; k < words; k++) \
                    t[l][k] = from[k][half + l]; \
            memcpy(to[half], t, sizeof t); \
        } \
        return; \
    } \
    for (uint64_t left = mask; left; left &= left - 1) { \
        int l = __builtin_ctzll(left); \
        uint32_t t[words]; \
        for (int k = 0; k < words; k++) \
            t[k] = from[k][l]; \
        memcpy(to[l], t, sizeof t); \
    }

/* Copy elements of lanes to their places; of equal places, the last lane's element stays. */
static void store_lanes(uint8_t *const *to, uint32_t size, uint64_t mask, const uint32_t (*from)[LANES]) {
    switch (size) {
    case 4: STORE_LANES(1) return;
    case 8: STORE_LANES(2) return;
    case 12: STORE_LANES(3) return;
    case 16: STORE_LANES(4) return;
    default:
        for (uint64_t left = mask; left; left &= left - 1) {
            int l = __builtin_ctzll(left);
            memcpy(to[l], &from[0][l], size);
        }
    }
}

/* What a load brings into registers, of elements extended with zeros. */
static void arrive(const Instruction *i, uint32_t (*value)[LANES]) {
    if (i->size >= 4)
        return;
    uint32_t unused = 32 - 8 * i->size;
    for (int l = 0; l < LANES; l++) {
        uint32_t word = value[0][l];
        if (i->flags & SIGNED)
            word = (uint32_t)((int32_t)(word << unused) >> unused);
        value[0][l] = i->flags & D16_HIGH ? word << 16 : i->flags & D16 ? word & 0xffff : word;
    }
}

/* Whether a load may fill its registers directly: nothing is between the memory and them, and no time. */
HOT bool loads_directly(const Wave *w, const Instruction *i) {
    return !w->worker->launch->strict && i->size >= 4 && !(i->flags & LDS_DMA);
}

/* The registers that a store takes: the upper half of one for d16_hi, else as they are. */
static const uint32_t (*leaving(const Wave *w, const Instruction *i, const Operand *o, uint32_t (*room)[LANES]))[LANES] {
    if (!(i->flags & D16_HIGH))
        return (const uint32_t(*)[LANES])&w->v[o->index];
    for (int l = 0; l < LANES; l++)
        room[0][l] = w->v[o->index][l] >> 16;
    return (const uint32_t(*)[LANES])room;
}

/* A memory instruction without a visible effect still occupies its counter. */
static int occupy(Wave *w, const Instruction *i) {
    if (!w->worker->launch->strict)
        return NEXT;
    Pending *p = new_pending(w, i);
    return p ? finish(w, p) : fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
}

/* Caches are written back or invalidated; `detail` says whether a counter counts it. */
static int run_cache_control(Wave *w, const Instruction *i) {
    if (checks_of(w))
        check_order(w, i);
    return i->detail ? occupy(w, i) : NEXT;
}

static int deliver(Wave *w, Pending *p, uint32_t registers, uint64_t mask) {
    p->commit = commit_vectors;
    p->count = registers;
    p->mask = mask;
    return finish(w, p);
}

HOT uint32_t registers_of(uint32_t size) { return size < 4 ? 1 : size / 4; }
