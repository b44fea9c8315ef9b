/* Branches, barriers, waits and the end of a wave. */
#pragma once
#include "waits.h"

static int run_nothing(Wave *w, const Instruction *i) {
    (void)w, (void)i;
    return NEXT;
}

static int run_unknown(Wave *w, const Instruction *i) {
    (void)i;
    return fail(w, UNKNOWN_FAULT, -1, 0, 0);
}

static int run_trap(Wave *w, const Instruction *i) {
    (void)i;
    return fail(w, TRAP_FAULT, -1, 0, 0);
}

/* A place behind the code's end, or one that no instruction begins at. */
static int run_nowhere(Wave *w, const Instruction *i) {
    return fail(w, JUMP_FAULT, -1, (uint64_t)i->offset, 0);
}

HOT int jump(Wave *w, bool taken, const Instruction *i) {
    if (!taken)
        return NEXT;
    w->pc = i->target;
    return JUMPED;
}

static int run_branch(Wave *w, const Instruction *i) { return jump(w, true, i); }
static int run_branch_scc0(Wave *w, const Instruction *i) { return jump(w, !w->scc, i); }
static int run_branch_scc1(Wave *w, const Instruction *i) { return jump(w, w->scc, i); }
static int run_branch_vccz(Wave *w, const Instruction *i) { return jump(w, mask_in(w, VCC) == 0, i); }
static int run_branch_vccnz(Wave *w, const Instruction *i) { return jump(w, mask_in(w, VCC) != 0, i); }
static int run_branch_execz(Wave *w, const Instruction *i) { return jump(w, exec_of(w) == 0, i); }
static int run_branch_execnz(Wave *w, const Instruction *i) { return jump(w, exec_of(w) != 0, i); }

static int jump_to_address(Wave *w, uint64_t address) {
    const Launch *g = w->worker->launch;
    uint64_t at = (address - g->code_base) / 4;
    if (address < g->code_base || (address & 3) || at >= g->at_count || g->at[at] == ~0u)
        return fail(w, JUMP_FAULT, -1, address - g->code_base, 0);
    w->pc = g->at[at];
    return JUMPED;
}

static int run_setpc(Wave *w, const Instruction *i) { return jump_to_address(w, scalar64(w, &i->in[0])); }

static int run_swappc(Wave *w, const Instruction *i) {
    uint64_t to = scalar64(w, &i->in[0]);
    set_scalar_pair(w, i->out.index, (uint64_t)i->offset);
    return jump_to_address(w, to);
}

static int run_getpc(Wave *w, const Instruction *i) {
    set_scalar_pair(w, i->out.index, (uint64_t)i->offset);
    return NEXT;
}

static int run_call(Wave *w, const Instruction *i) {
    set_scalar_pair(w, i->out.index, (uint64_t)i->offset);
    return jump(w, true, i);
}

/* Whether vector instructions are skipped from here on: a bit of a scalar. */
static int run_set_skip(Wave *w, const Instruction *i) {
    w->skips = scalar32(w, &i->in[0]) >> (scalar32(w, &i->in[1]) & 31) & 1;
    return NEXT;
}

/* M0's index of registers, and what it applies to: `size` are the bits to replace, `detail` the fixed ones of them. */
static int run_set_index(Wave *w, const Instruction *i) {
    w->s[M0] = (w->s[M0] & ~i->size) | i->detail | (scalar32(w, &i->in[0]) & 0xff);
    return NEXT;
}

static void count_arrival(Block *b) {
    if (b->arrived < b->living || b->living == 0)
        return;
    uint32_t waves = b->waves->worker->launch->waves_per_block;
    if (b->arrived && b->living < waves)
        check_missed(b, waves);
    b->arrived = 0;
    b->phase++;
}

static int run_barrier_signal(Wave *w, const Instruction *i) {
    (void)i;
    if (checks_of(w))
        check_signal(w);
    w->phase = w->block->phase;
    w->block->arrived++;
    count_arrival(w->block);
    return NEXT;
}

/* Says in SCC whether this wave is the first of its block. */
static int run_barrier_first(Wave *w, const Instruction *i) {
    w->scc = w->block->arrived == 0;
    return run_barrier_signal(w, i);
}

static int run_barrier_wait(Wave *w, const Instruction *i) {
    (void)i;
    if (w->phase != w->block->phase) {
        w->passed = w->signals;
        return NEXT;
    }
    w->pc++;
    w->state = AT_BARRIER;
    return YIELDED;
}

static int run_barrier(Wave *w, const Instruction *i) {
    run_barrier_signal(w, i);
    return run_barrier_wait(w, i);
}

/* The barrier of the whole grid. A wave that has to wait comes here again when its block has a turn. */
static int run_grid_barrier(Wave *w, const Instruction *i) {
    Launch *g = w->worker->launch;
    uint64_t exec = exec_of(w);
    uint32_t last = w->v[i->in[0].index][exec ? __builtin_ctzll(exec) : 0];
    if (!w->at_grid) {
        w->at_grid = true;
        w->grid_phase = __atomic_load_n(&g->grid_phase, __ATOMIC_ACQUIRE);
        if (__atomic_fetch_add(&g->grid_arrived, 1, __ATOMIC_ACQ_REL) == last) {
            if (g->checks & CHECK_RACES)
                forget_accesses(g);
            __atomic_store_n(&g->grid_arrived, 0, __ATOMIC_RELAXED);
            __atomic_fetch_add(&g->grid_phase, 1, __ATOMIC_RELEASE);
        }
    }
    if (__atomic_load_n(&g->grid_phase, __ATOMIC_ACQUIRE) != w->grid_phase) {
        w->at_grid = false;
        return NEXT;
    }
    w->worker->executed[w->pc]--; /* counted when it is passed */
    w->block->gives_way = true;
    return YIELDED;
}

static int run_end(Wave *w, const Instruction *i) {
    (void)i;
    drain_all(w);
    w->state = ENDED;
    w->block->living--;
    count_arrival(w->block);
    return YIELDED;
}

/* HW_REG_MODE is the only hardware register that is kept: `detail` is the first bit, `size` how many. */
static int run_getreg(Wave *w, const Instruction *i) {
    w->s[i->out.index] = (w->float_mode >> i->detail) & (uint32_t)((1ull << i->size) - 1);
    return NEXT;
}

static int run_setreg(Wave *w, const Instruction *i) {
    uint32_t mask = (uint32_t)((1ull << i->size) - 1) << i->detail;
    w->float_mode = (w->float_mode & ~mask) | ((scalar32(w, &i->in[0]) << i->detail) & mask);
    if (w->float_mode & 15)
        return fail(w, ROUNDING_FAULT, -1, w->float_mode, 0);
    return NEXT;
}

/* Time is counted in instructions of the wave, so that runs repeat exactly. It arrives like a scalar load. */
static int run_time(Wave *w, const Instruction *i) {
    Pending *p = new_pending(w, i);
    if (!p)
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    p->value[0][0] = (uint32_t)w->executed;
    p->value[1][0] = (uint32_t)(w->executed >> 32);
    p->commit = commit_scalars;
    p->in_order = false;
    p->count = 2;
    return finish(w, p);
}
