/* Which accesses of other waves are ordered before what a wave does: see shadow.h. */
#pragma once
#include "findings.h"

/* A store of another work-group that a wave of this one has read, and when. Known: the wave also acquired it. */
typedef struct { Access store; uint32_t wave, signals; bool known; } Received;
struct Order { Received *received; uint32_t count, room; };
/* Atomic updates of a dword continue the order of those before them, so all of them are kept. */
typedef struct Update { struct Update *next; uint64_t dword; Access store; } Update;
enum { UPDATE_LISTS = 1 << 12 };
/* Between the batches of a launch. */
struct Checker { struct Order *orders; int64_t blocks; Update *updates[UPDATE_LISTS]; };

/* Whether something orders an earlier access before what the wave does now. */
static bool is_ordered(const Wave *w, const Access *before) {
    if (before->signals == MOST_SIGNALS)
        return true;
    if (before->block == (uint32_t)w->block->number + 1) {
        const uint32_t *known = &w->block->known[w->number * w->worker->launch->waves_per_block];
        return before->wave == w->number || w->passed > before->signals || known[before->wave] > before->waits;
    }
    const struct Order *order = &w->worker->launch->checker->orders[w->block->number];
    for (uint32_t k = order->count; k-- > 0;) {
        const Received *r = &order->received[k];
        if (!r->known || r->store.block != before->block || !(r->wave == w->number || w->passed > r->signals))
            continue;
        if (r->store.wave == before->wave ? before->releases < r->store.releases : before->signals < r->store.signals)
            return true;
    }
    return false;
}

HOT bool is_valid(const Access *access, const Wave *w, bool in_lds) {
    return in_lds ? access->block == (uint32_t)w->block->number + 1 : access->block != 0;
}

/* Atomic or coherent on both sides, which is how flags and counters are used. */
HOT bool synchronizes(const Access *access) { return access->flags & (ATOMIC | BYPASSES | SYNCHRONIZES); }

/* Some GPUs have no sign of an atomic store: one that a coherent load meets may be atomic. */
HOT bool may_synchronize(const Wave *w, const Access *one, const Access *other) {
    if (synchronizes(one) && synchronizes(other))
        return true;
    return !w->worker->launch->scoped_stores && (one->flags | other->flags) & BYPASSES;
}

HOT bool conflicts(const Wave *w, const Access *before, const Access *now, bool in_lds) {
    return is_valid(before, w, in_lds) && before->mask & now->mask && !may_synchronize(w, before, now) &&
           !is_ordered(w, before);
}

static void receive(Wave *w, const Access *store, bool known) {
    struct Order *order = &w->worker->launch->checker->orders[w->block->number];
    for (uint32_t k = 0; k < order->count; k++) {
        const Received *r = &order->received[k];
        if (r->store.block == store->block && r->store.wave == store->wave && r->store.releases >= store->releases &&
            r->store.signals >= store->signals && r->known >= known && (r->wave == w->number || w->passed > r->signals))
            return;
    }
    if (order->count == order->room) {
        uint32_t room = order->room ? 2 * order->room : 8;
        Received *more = realloc(order->received, room * sizeof *more);
        if (!more)
            return;
        order->received = more, order->room = room;
    }
    order->received[order->count++] = (Received){*store, w->number, w->signals, known};
}

/* A wave read what another one stored: the way by which order spreads. */
static void receive_store(Wave *w, const Access *store, uint64_t dword, bool in_lds) {
    if (in_lds || store->block == (uint32_t)w->block->number + 1) {
        if (store->wave == w->number || !synchronizes(store))
            return;
        uint32_t waves = w->worker->launch->waves_per_block, *mine = &w->block->known[w->number * waves];
        const uint32_t *theirs = &w->block->known[store->wave * waves];
        for (uint32_t k = 0; k < waves; k++)
            mine[k] = theirs[k] > mine[k] ? theirs[k] : mine[k];
        mine[store->wave] = store->waits > mine[store->wave] ? store->waits : mine[store->wave];
        return;
    }
    receive(w, store, false);
    for (const Update *u = w->worker->launch->checker->updates[dword % UPDATE_LISTS]; u; u = u->next)
        if (u->dword == dword && u->store.block != (uint32_t)w->block->number + 1)
            receive(w, &u->store, false);
}

static void keep_update(Wave *w, const Access *now, uint64_t dword) {
    Update **list = &w->worker->launch->checker->updates[dword % UPDATE_LISTS];
    if (!w->stores)
        return; /* it has nothing to tell */
    for (Update *u = *list; u; u = u->next)
        if (u->dword == dword && u->store.block == now->block && u->store.wave == now->wave) {
            u->store = *now;
            return;
        }
    Update *u = malloc(sizeof *u);
    if (u)
        *u = (Update){*list, dword, *now}, *list = u;
}

/* An acquire at the scope of the device: whatever waves of this work-group have received is known. */
static void acquire(Wave *w) {
    struct Order *orders = w->worker->launch->checker->orders, *order = &orders[w->block->number];
    uint32_t count = order->count;
    for (uint32_t k = 0; k < count; k++) {
        Received r = order->received[k];
        if (r.known || !(r.wave == w->number || w->passed > r.signals))
            continue;
        receive(w, &r.store, true);
        const struct Order *theirs = &orders[r.store.block - 1];
        for (uint32_t j = 0; j < theirs->count; j++)
            if (theirs->received[j].known && theirs->received[j].store.block != (uint32_t)w->block->number + 1)
                receive(w, &theirs->received[j].store, true);
    }
}

/* Waits and cache instructions, as far as they order accesses. */
COLD void check_order(Wave *w, const Instruction *i) {
    const Launch *g = w->worker->launch;
    if (i->scope & (WAITS_FOR_STORES | WAITS_FOR_LDS) && w->waits < 0xffffff)
        w->waits++;
    bool complete = i->scope & WAITS_FOR_STORES || (i->scope & WRITES_BACK && w->stores == w->stores_waited);
    if (i->scope & WRITES_BACK)
        w->written_back = true;
    if (complete) {
        w->stores_waited = w->stores;
        if ((w->written_back || !g->needs_writeback) && w->releases < MOST_SIGNALS)
            w->releases++;
        w->written_back = false;
    }
    if (i->scope & INVALIDATES && g->checks & CHECK_RACES)
        acquire(w);
}

__attribute__((visibility("default"))) struct Checker *tilewright_make_checker(int64_t blocks) {
    struct Checker *checker = calloc(1, sizeof *checker);
    if (checker && !(checker->orders = calloc((size_t)blocks, sizeof *checker->orders))) {
        free(checker);
        return NULL;
    }
    if (checker)
        checker->blocks = blocks;
    return checker;
}

__attribute__((visibility("default"))) void tilewright_free_checker(struct Checker *checker) {
    for (int64_t k = 0; k < checker->blocks; k++)
        free(checker->orders[k].received);
    for (int k = 0; k < UPDATE_LISTS; k++)
        for (Update *u = checker->updates[k], *next; u; u = next) {
            next = u->next;
            free(u);
        }
    free(checker->orders);
    free(checker);
}
