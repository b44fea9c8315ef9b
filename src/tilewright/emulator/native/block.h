/* Work-groups: making them, and running their waves up to barriers. */
#pragma once
#include "control.h"
#include "waits.h"

/* A wave that ran this many instructions lets others run: it may wait for one of them. */
enum { TURN = 1 << 18 };
/* Registers begin on lines of the host's cache. */
enum { HOST_LINE = 64 };

static size_t rounded(size_t bytes) { return (bytes + HOST_LINE - 1) / HOST_LINE * HOST_LINE; }

static void fill(uint32_t *to, uint32_t value, size_t bytes) {
    for (size_t k = 0; k < bytes / 4; k++)
        to[k] = value;
}

static size_t cells_bytes(const Launch *g) { return (g->lds_bytes + 3) / 4 * sizeof(Cell); }

static size_t known_bytes(const Launch *g) { return (size_t)g->waves_per_block * g->waves_per_block * 4; }

static size_t block_bytes(const Launch *g) {
    size_t wave = sizeof(Wave) + (size_t)g->registers * LANES * 4;
    size_t checked = g->checks ? rounded(g->lds_bytes) + rounded(cells_bytes(g)) + rounded(known_bytes(g)) : 0;
    return rounded(sizeof(Block)) + g->waves_per_block * wave + rounded(g->lds_bytes) + checked;
}

/* The first state of a wave. */
static void start_wave(Worker *worker, Block *b, uint32_t number, uint8_t *registers) {
    const Launch *g = worker->launch;
    Wave *w = &b->waves[number];
    size_t bytes = (size_t)g->registers * LANES * 4, firsts = (size_t)g->first_vectors * LANES * 4;
    memset(w, 0, sizeof *w);
    w->v = (void *)registers;
    fill((uint32_t *)registers, g->strict ? g->poison : 0, bytes);
    memcpy(registers, (const uint8_t *)g->vectors + number * firsts, firsts);
    uint64_t row = (uint64_t)(b->number - g->first_block) * g->waves_per_block + number;
    memcpy(w->s, g->scalars + row * SCALARS, sizeof w->s);
    w->pc = g->entry;
    w->float_mode = g->float_mode;
    w->number = number;
    w->all = g->lanes == 64 ? ~0ull : 0xffffffffull;
    w->began = exec_of(w);
    size_t own = (size_t)g->scratch_bytes * g->lanes;
    w->scratch_address = g->scratch + row * own;
    w->scratch = (uint8_t *)w->scratch_address;
    fill((uint32_t *)w->scratch, g->strict ? g->poison : 0, own);
    w->block = b;
    w->worker = worker;
}

/* A block about to begin, in new or used room; NULL when there is no memory. */
static Block *start_block(Worker *worker, Block *used, int64_t number) {
    const Launch *g = worker->launch;
    uint8_t *room = used ? (uint8_t *)used : aligned_alloc(HOST_LINE, rounded(block_bytes(g)));
    if (!room)
        return NULL;
    Block *b = (Block *)room;
    memset(b, 0, sizeof *b);
    b->number = number;
    b->living = g->waves_per_block;
    room += rounded(sizeof *b);
    b->waves = (Wave *)room;
    room += g->waves_per_block * sizeof(Wave);
    b->lds = room;
    fill((uint32_t *)b->lds, g->strict ? g->poison : 0, rounded(g->lds_bytes));
    room += rounded(g->lds_bytes);
    if (g->checks) {
        b->defined = room;
        memset(b->defined, 0, g->lds_bytes);
        room += rounded(g->lds_bytes);
        b->cells = (Cell *)room;
        if (!used) /* later, the numbers of blocks tell what is old */
            memset(b->cells, 0, cells_bytes(g));
        room += rounded(cells_bytes(g));
        b->known = (uint32_t *)room;
        memset(b->known, 0, known_bytes(g));
        room += rounded(known_bytes(g));
    }
    size_t each = (size_t)g->registers * LANES * 4;
    for (uint32_t k = 0; k < g->waves_per_block; k++)
        start_wave(worker, b, k, room + k * each);
    return b;
}

static void abandon(Block *b, uint32_t waves) {
    for (uint32_t k = 0; k < waves; k++)
        drop_pending(&b->waves[k]);
}

/* No wave can run on, and some wait. `size` of the fault says how many. */
static void deadlock(Block *b, uint32_t waves) {
    Wave *first = NULL;
    uint64_t count = 0;
    for (uint32_t k = waves; k-- > 0;)
        if (b->waves[k].state == AT_BARRIER) {
            first = &b->waves[k];
            count++;
        }
    if (!first)
        return;
    first->pc--;
    fail(first, BARRIER_FAULT, -1, 0, count);
}
