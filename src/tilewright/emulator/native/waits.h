/* Strict mode: effects of memory instructions wait in queues until an instruction asks for them. */
#pragma once
#include "barrier_checks.h"
#include "wave.h"

static Pending *new_pending(Wave *w, const Instruction *i) {
    Worker *worker = w->worker;
    Pending *p = worker->spare;
    if (p)
        worker->spare = p->next;
    else if (!(p = malloc(sizeof *p)))
        return NULL;
    p->next = NULL;
    p->instruction = i;
    p->commit = NULL;
    p->in_order = true;
    p->in_lds = NULL;
    p->writes_lds = false;
    p->count = 0;
    p->left_out = 0;
    return p;
}

static void commit_vectors(Wave *w, Pending *p);
static void commit_scalars(Wave *w, Pending *p);

HOT bool writes_registers(const Pending *p) { return p->commit == commit_vectors || p->commit == commit_scalars; }

static void append(Wave *w, Queue *q, Pending *p) {
    if (!q->length)
        q->from = INT32_MAX, q->to = 0;
    w->busy |= 1u << (q - w->queue);
    if (writes_registers(p)) {
        int first = p->instruction->out.index, behind = first + (int)p->count;
        q->from = first < q->from ? first : q->from;
        q->to = behind > q->to ? behind : q->to;
    }
    if (q->last)
        q->last->next = p;
    else
        q->first = p;
    q->last = p;
    q->length++;
}

static void release(Wave *w, Pending *p) {
    p->next = w->worker->spare;
    w->worker->spare = p;
}

/* Make visible what must be when at most `count` are under way. What began in order ends in order, so all but the last
 * `count` of it are over. Scalar loads may end in any order: which of them is over is known only when all are. */
static void drain(Wave *w, Queue *q, uint32_t count) {
    uint32_t ordered = 0;
    for (Pending *p = q->first; p; p = p->next)
        ordered += p->in_order;
    uint32_t over = ordered > count ? ordered - count : 0;
    Pending *p = q->first;
    *q = (Queue){0};
    w->busy &= ~(1u << (q - w->queue));
    while (p) {
        Pending *next = p->next;
        p->next = NULL;
        bool ends = count == 0 || (p->in_order && over > 0);
        over -= p->in_order && over > 0;
        if (ends) {
            if (p->commit)
                p->commit(w, p);
            release(w, p);
        } else
            append(w, q, p);
        p = next;
    }
}

static int run_wait(Wave *w, const Instruction *i) {
    if (checks_of(w))
        check_order(w, i);
    for (int k = 0; k < QUEUES; k++)
        if (w->queue[k].length > i->wait[k])
            drain(w, &w->queue[k], i->wait[k]);
    return NEXT;
}

/* The end of a wave makes everything visible. */
static void drain_all(Wave *w) {
    for (int k = 0; k < QUEUES; k++)
        if (w->queue[k].length)
            drain(w, &w->queue[k], 0);
}

static void drop_pending(Wave *w) {
    for (int k = 0; k < QUEUES; k++) {
        for (Pending *p = w->queue[k].first, *next; p; p = next) {
            next = p->next;
            release(w, p);
        }
        w->queue[k] = (Queue){0};
    }
    w->busy = 0;
}

static void free_spare(Worker *worker) {
    while (worker->spare) {
        Pending *p = worker->spare;
        worker->spare = p->next;
        free(p);
    }
}

static void commit_vectors(Wave *w, Pending *p) {
    const Instruction *i = p->instruction;
    if (i->flags & (D16 | D16_HIGH)) {
        uint32_t keep = i->flags & D16_HIGH ? 0x0000ffffu : 0xffff0000u, merged[LANES];
        const uint32_t *old = w->v[i->out.index];
        for (int l = 0; l < LANES; l++)
            merged[l] = (old[l] & keep) | (p->value[0][l] & ~keep);
        write_lanes(w, i->out.index, merged, p->mask);
        return;
    }
    for (uint32_t k = 0; k < p->count; k++)
        if (!(p->left_out >> k & 1))
            write_lanes(w, i->out.index + (int)k, p->value[k], p->mask);
}

static void commit_scalars(Wave *w, Pending *p) {
    for (uint32_t k = 0; k < p->count; k++)
        w->s[p->instruction->out.index + (int)k] = p->value[k][0];
}

/* An effect that was filled in by its instruction: now, or later, in the queue of that number. */
HOT int finish_in(Wave *w, Pending *p, uint32_t number) {
    const Launch *g = w->worker->launch;
    if (g->strict) {
        Queue *q = &w->queue[number];
        if (q->length >= g->capacity[number])
            drain(w, q, g->capacity[number] - 1u); /* a full counter cannot count one more */
        append(w, q, p);
        return NEXT;
    }
    if (p->commit)
        p->commit(w, p);
    release(w, p);
    return NEXT;
}

HOT int finish(Wave *w, Pending *p) { return finish_in(w, p, p->instruction->queue); }

/* Whether an instruction wrote register k of those that a load is under way to. */
static bool wrote(const Written *written, const Pending *p, uint32_t k) {
    int number = p->instruction->out.index + (int)k, kind = p->commit == commit_scalars ? SCALAR : VECTOR;
    if (p->left_out >> k & 1)
        return false;
    for (int j = 0; j < MOST_WRITTEN && written[j].count; j++)
        if (written[j].kind == kind && written[j].first <= number && number < written[j].first + written[j].count)
            return true;
    return false;
}

static bool meets(const Written *written, const Pending *p) {
    if (!writes_registers(p))
        return false;
    int first = p->instruction->out.index, behind = first + (int)p->count;
    int kind = p->commit == commit_scalars ? SCALAR : VECTOR;
    for (int j = 0; j < MOST_WRITTEN && written[j].count; j++)
        if (written[j].kind == kind && written[j].first < behind && first < written[j].first + written[j].count)
            return true;
    return false;
}

/* Whether some effect in a queue may meet what was written: mostly none does, and the queue is long. */
static bool may_meet(const Written *written, const Queue *q) {
    for (int k = 0; k < MOST_WRITTEN && written[k].count; k++)
        if (written[k].first < q->to && q->from < written[k].first + written[k].count)
            return true;
    return false;
}

/* The load came before its registers were written: what is in them now stays, in the lanes that were written. */
static void overtake(Wave *w, const Instruction *i, Pending *p) {
    uint64_t exec = exec_of(w);
    for (uint32_t k = 0; k < p->count; k++) {
        if (!wrote(i->written, p, k))
            continue;
        int number = p->instruction->out.index + (int)k;
        if (p->commit == commit_scalars)
            p->value[k][0] = w->s[number];
        else
            for (int l = 0; l < LANES; l++)
                p->value[k][l] = exec >> l & 1 ? w->v[number][l] : p->value[k][l];
    }
}

/* Strict mode: a load under way arrives right after something else wrote its register, and overwrites that; turned, it
 * arrives right before. It stays in its queue: see overwrites.py. */
COLD void overwrite(Wave *w, const Instruction *i) {
    for (uint32_t left = w->busy; left; left &= left - 1) {
        const Queue *q = &w->queue[__builtin_ctz(left)];
        if (may_meet(i->written, q))
            for (Pending *p = q->first; p; p = p->next)
                if (meets(i->written, p)) {
                    if (w->worker->launch->turned)
                        overtake(w, i, p);
                    else
                        p->commit(w, p);
                }
    }
}
