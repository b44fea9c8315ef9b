/* Barriers, for the checks: writes under way at a signal, and waves or lanes that are not there. */
#pragma once
#include "shadow.h"

static void delay_write(Wave *w, uint32_t place, uint32_t size) {
    for (uint32_t at = place; at < place + size; at = at / 4 * 4 + 4) {
        Access *write = &w->block->cells[at / 4].write;
        if (write->wave == w->number && is_valid(write, w, true) && write->signals < MOST_SIGNALS - 1) {
            write->signals = (uint16_t)w->signals;
            write->flags |= LATE;
        }
    }
}

/* LDS writes that are still under way at a barrier's signal are not ordered by it. */
static void delay_pending(Wave *w) {
    for (int k = 0; k < QUEUES; k++)
        for (const Pending *p = w->queue[k].first; p; p = p->next)
            for (uint32_t n = 0; p->writes_lds && n < p->places; n++)
                for (uint64_t left = p->mask; left; left &= left - 1)
                    delay_write(w, p->place[n][__builtin_ctzll(left)], p->size);
}

/* After a barrier of the whole grid, all accesses before it are ordered. */
COLD void forget_accesses(Launch *g) {
    for (uint64_t k = 0; k < g->range_count; k++)
        if (g->shadows[k].cells)
            memset(g->shadows[k].cells, 0, (g->ranges[k].end - g->ranges[k].start + 3) / 4 * sizeof(Cell));
}

COLD void report_barrier(Wave *w, uint32_t kind, uint32_t at, const Wave *other, int lane) {
    struct Finding *f = find_finding(w->worker->launch, kind, at, other ? other->pc : 0);
    if (!f)
        return;
    f->block = w->block->number, f->wave = (int32_t)w->number, f->lane = lane;
    f->other_block = other ? other->block->number : -1;
    f->other_wave = other ? (int32_t)other->number : -1;
    f->other_lane = -1;
}

/* A wave signals a barrier: all lanes that it began with must be there. */
COLD void check_signal(Wave *w) {
    uint32_t checks = checks_of(w);
    uint64_t exec = exec_of(w);
    w->signals++;
    w->worker->changes++;
    if (checks & CHECK_RACES && w->block->cells)
        delay_pending(w);
    if (checks & CHECK_BARRIERS && exec && w->began & ~exec)
        report_barrier(w, PARTIAL_BARRIER, w->pc, NULL, __builtin_ctzll(w->began & ~exec));
}

/* A barrier is complete although waves have ended before it. `at` is an instruction of the barrier. */
COLD void check_missed(Block *b, uint32_t waves) {
    Wave *waiting = NULL;
    const Wave *ended = NULL;
    for (uint32_t k = waves; k-- > 0;) {
        if (b->waves[k].state == ENDED)
            ended = &b->waves[k];
        else
            waiting = &b->waves[k];
    }
    if (!waiting || !ended || !(checks_of(waiting) & CHECK_BARRIERS))
        return;
    uint32_t at = waiting->state == AT_BARRIER ? waiting->pc - 1 : waiting->pc;
    report_barrier(waiting, MISSED_BARRIER, at, ended, -1);
}
