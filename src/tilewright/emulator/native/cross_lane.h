/* Instructions whose lanes see each other, and those that are made of two others. */
#pragma once
#include "alu.h"
#include "wave.h"

/* With no lane active, lane 0 is read. */
static int run_read_first_lane(Wave *w, const Instruction *i) {
    uint64_t exec = exec_of(w);
    uint32_t room[LANES];
    const uint32_t *from = lanes_of(w, i, &i->in[0], 0, 0, room);
    w->s[i->out.index] = from[exec ? __builtin_ctzll(exec) : 0];
    return NEXT;
}

static int run_read_lane(Wave *w, const Instruction *i) {
    uint32_t room[LANES];
    const uint32_t *from = lanes_of(w, i, &i->in[0], 0, 0, room);
    w->s[i->out.index] = from[scalar32(w, &i->in[1]) & (w->worker->launch->lanes - 1)];
    return NEXT;
}

static int run_write_lane(Wave *w, const Instruction *i) {
    w->v[i->out.index][scalar32(w, &i->in[1]) & (w->worker->launch->lanes - 1)] = scalar32(w, &i->in[0]);
    return NEXT;
}

/* How many bits of a are set below the lane: `detail` is 0 for the lower 32 lanes, 32 for the upper. */
static int run_count_below(Wave *w, const Instruction *i) {
    SOURCE(a, 0, 0)
    SOURCE(b, 1, 0)
    _Alignas(64) uint32_t out[LANES];
    for (int l = 0; l < LANES; l++) {
        uint32_t below = (uint32_t)(((1ull << l) - 1) >> i->detail);
        out[l] = (uint32_t)__builtin_popcount(lanes_a[l] & below) + lanes_b[l];
    }
    return finish_32(w, i, out, BITS_32);
}

/* Exchange two registers, or halves of them: maybe those of one register. */
static int run_swap(Wave *w, const Instruction *i) {
    uint64_t exec = exec_of(w);
    uint32_t *one = w->v[i->out.index], *other = w->v[i->in[0].index];
    int to = i->out.shift, from = i->in[0].shift;
    uint32_t bits = i->out.width == 32 ? ~0u : 0xffff;
    for (int l = 0; l < LANES; l++) {
        uint32_t changed = exec >> l & 1 ? (one[l] >> to ^ other[l] >> from) & bits : 0;
        one[l] ^= changed << to;
        other[l] ^= changed << from;
    }
    return NEXT;
}

/* Exchange the odd groups of `detail` lanes of one register with the even groups of the other. */
static int run_swap_rows(Wave *w, const Instruction *i) {
    int rows = (int)i->detail;
    if (exec_of(w) != w->all)
        return fail(w, INACTIVE_FAULT, -1, 0, 0);
    uint32_t *one = w->v[i->out.index], *other = w->v[i->in[0].index];
    for (int l = 0; l < (int)w->worker->launch->lanes; l++)
        if (l & rows) {
            uint32_t t = one[l];
            one[l] = other[l - rows];
            other[l - rows] = t;
        }
    return NEXT;
}

/* A lane takes the lane of its row of 16, or of the row beside it (`detail`), that four bits of two scalars name.
 * `offset` reads lanes that exec disables; else they give 0 (`offset1`), or the lane is not written. */
static int run_permute_row(Wave *w, const Instruction *i) {
    uint64_t exec = exec_of(w), readable = ~0ull;
    uint32_t word[2] = {scalar32(w, &i->in[1]), scalar32(w, &i->in[2])};
    _Alignas(64) uint32_t out[LANES];
    for (int l = 0; l < (int)w->worker->launch->lanes; l++) {
        int from = ((l & ~15) ^ (int)i->detail) + (int)(word[l >> 3 & 1] >> 4 * (l & 7) & 15);
        out[l] = w->v[i->in[0].index][from];
        if (!i->offset && !(exec >> from & 1)) {
            readable &= ~(1ull << l);
            out[l] = 0;
        }
    }
    write_lanes(w, i->out.index, out, i->offset1 ? exec : exec & readable);
    return NEXT;
}

/* The same with the lanes that the low four bits of a register name. */
static int run_permute_row_by_lane(Wave *w, const Instruction *i) {
    uint64_t exec = exec_of(w), readable = ~0ull;
    _Alignas(64) uint32_t out[LANES];
    for (int l = 0; l < (int)w->worker->launch->lanes; l++) {
        int from = ((l & ~15) ^ (int)i->detail) + (int)(w->v[i->in[1].index][l] & 15);
        out[l] = w->v[i->in[0].index][from];
        if (!i->offset && !(exec >> from & 1)) {
            readable &= ~(1ull << l);
            out[l] = 0;
        }
    }
    write_lanes(w, i->out.index, out, i->offset1 ? exec : exec & readable);
    return NEXT;
}

static int run_handler(Wave *w, const Instruction *i);

/* Two instructions that both read before either writes. They stand behind the code, and write to registers of their
 * own (their `out`); `second` and `out` of the pair say where those go. */
static int run_pair(Wave *w, const Instruction *i) {
    const Instruction *parts = &w->worker->launch->code[i->target];
    run_handler(w, &parts[0]);
    run_handler(w, &parts[1]);
    write_lanes(w, i->out.index, w->v[parts[0].out.index], exec_of(w));
    write_lanes(w, i->second.index, w->v[parts[1].out.index], exec_of(w));
    return NEXT;
}

/* The same for two halves of one register. */
static int run_halves(Wave *w, const Instruction *i) {
    const Instruction *parts = &w->worker->launch->code[i->target];
    run_handler(w, &parts[0]);
    run_handler(w, &parts[1]);
    _Alignas(64) uint32_t out[LANES];
    const uint32_t *low = w->v[parts[0].out.index], *high = w->v[parts[1].out.index];
    for (int l = 0; l < LANES; l++)
        out[l] = (low[l] & 0xffff) | high[l] << 16;
    write_lanes(w, i->out.index, out, exec_of(w));
    return NEXT;
}
