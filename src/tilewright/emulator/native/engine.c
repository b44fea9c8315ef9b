/* The native engine: runs the work-groups of a launch, instruction by instruction, wave by wave. */
/* Before functions.h, whose macros have names of the C library. */
#include <pthread.h>

#include "types.h"
#include "wave.h"
#include "waits.h"
#include "control.h"
#include "block.h"
#include "counters.h"
#include "scalar_memory.h"
#include "global_memory.h"
#include "flat.h"
#include "buffer.h"
#include "lds.h"
#include "lds_atomics.h"
#include "register_blocks.h"
#include "atomics.h"
#include "scalar_writes.h"
#include "matrix.h"
#include "cross_lane.h"
#include "indexed.h"
#include "elements.h"
#include "logic.h"
#include "operations.inc"

typedef int (*Handler)(Wave *, const Instruction *);

static const Handler HANDLERS[] = {
#include "handlers.inc"
};

static int run_handler(Wave *w, const Instruction *i) { return HANDLERS[i->op](w, i); }

/* What the threads of a launch share. */
typedef struct {
    pthread_mutex_t lock;
    int64_t next;   /* how many blocks were begun */
    int64_t end;    /* no block from here on is begun: the grid's end, or a fault */
} Supply;

typedef struct {
    Worker worker;
    Supply *supply;
    pthread_t thread;
} Share;

/* Add an instruction to the path of its wave, if that is kept. */
static void record_path(Wave *w) {
    const Launch *g = w->worker->launch;
    uint64_t number = (uint64_t)w->block->number * g->waves_per_block + w->number;
    if (number >= g->path_waves)
        return;
    uint32_t *path = g->paths + number * (2 + 2 * (uint64_t)g->path_room), *last = path + 2 * (uint64_t)path[0];
    if (path[1])
        return;
    if (path[0] && last[0] + last[1] == w->pc) {
        last[1]++;
    } else if (path[0] < g->path_room) {
        last[2] = w->pc;
        last[3] = 1;
        path[0]++;
    } else {
        path[1] = 1;
    }
}

/* Run an instruction, and add what it changes in the counters to its own counts. */
static int run_profiled(Wave *w, const Instruction *i) {
    Worker *worker = w->worker;
    InstructionCounts *own = &worker->launch->profile[w->pc];
    uint64_t bytes[4], atomics = worker->atomics, lines = worker->cache_lines, conflicts = worker->conflict_cycles;
    memcpy(bytes, worker->bytes, sizeof bytes);
    own->lanes += (uint64_t)__builtin_popcountll(exec_of(w));
    int status = HANDLERS[i->op](w, i);
    for (int k = 0; k < 4; k++)
        own->bytes[k] += worker->bytes[k] - bytes[k];
    own->atomics += worker->atomics - atomics;
    own->cache_lines += worker->cache_lines - lines;
    own->conflict_cycles += worker->conflict_cycles - conflicts;
    return status;
}

/* Run a wave to a barrier, its end, a fault, or until its turn is over. */
static void run_wave(Wave *w, uint64_t turn) {
    Worker *worker = w->worker;
    const Instruction *code = worker->launch->code;
    bool strict = worker->launch->strict, profiled = worker->launch->profile;
    uint64_t begun = w->executed;
    while (w->executed - begun < turn) {
        const Instruction *i = &code[w->pc];
        worker->executed[w->pc]++;
        w->executed++;
        if (__builtin_expect(profiled, 0))
            record_path(w);
        if (__builtin_expect(w->skips, 0) && i->vector) { /* s_setvskip */
            w->pc++;
            continue;
        }
        int status = __builtin_expect(profiled, 0) ? run_profiled(w, i) : HANDLERS[i->op](w, i);
        if (w->busy && strict && i->written[0].count && status == NEXT)
            overwrite(w, i);
        if (__builtin_expect(status == NEXT, 1))
            w->pc++;
        else if (status != JUMPED)
            break;
    }
    worker->total += w->executed - begun;
}

/* A wave that ends a turn at the same instruction with the same registers as before, while nothing changed, goes round
 * in circles. It runs on from the end of its turn until it is there again. */
enum { LONGEST_ROUND = 1 << 12 };

static uint64_t digest_registers(const Wave *w) {
    uint64_t digest = w->scc;
    for (int k = 0; k < SCALARS; k++)
        digest = (digest ^ w->s[k]) * 0x100000001b3ull;
    const uint32_t *v = &w->v[0][0];
    for (size_t k = 0; k < (size_t)w->worker->launch->registers * LANES; k++)
        digest = (digest ^ v[k]) * 0x100000001b3ull;
    return digest;
}

static void check_spin(Wave *w) {
    uint64_t changes = w->worker->changes, digest = digest_registers(w);
    uint32_t pc = w->pc;
    w->spins = false;
    for (int k = 0; k < LONGEST_ROUND && w->state == READY && !w->worker->fault.code; k++) {
        run_wave(w, 1);
        if (w->worker->changes != changes)
            return;
        if (w->pc == pc && digest_registers(w) == digest) {
            w->spins = true;
            return;
        }
    }
}

/* Whether some wave came further. In strict mode every other block runs its waves downwards: both orders must work. */
static bool run_waves(Worker *worker, Block *b) {
    bool progress = false;
    const Launch *g = worker->launch;
    for (uint32_t k = 0; k < g->waves_per_block && !worker->fault.code; k++) {
        bool down = g->strict && (b->number & 1) != (int64_t)g->turned;
        Wave *w = &b->waves[down ? g->waves_per_block - 1 - k : k];
        if (w->state == AT_BARRIER && w->phase != b->phase) {
            w->state = READY;
            w->passed = w->signals;
        }
        if (w->state != READY)
            continue;
        uint64_t left = g->limit - worker->total;
        run_wave(w, left < TURN ? left : TURN);
        if (g->checks & CHECK_PROGRESS && w->state == READY && !worker->fault.code)
            check_spin(w);
        progress = true;
        if ((worker->total >= g->limit || g->stop) && !worker->fault.code && w->state == READY)
            fail(w, LOOP_FAULT, -1, 0, worker->total);
    }
    return progress;
}

/* Whether the block ended; false when it has used up its turn. */
static bool run_block(Worker *worker, Block *b) {
    uint64_t begun = worker->total;
    while (!worker->fault.code && b->living && !worker->launch->stop) {
        if (!run_waves(worker, b))
            deadlock(b, worker->launch->waves_per_block);
        if ((worker->total - begun >= TURN || b->gives_way) && b->living) {
            b->gives_way = false;
            return false;
        }
    }
    return true;
}

/* The next block: upwards, or turned. What a block wrongly writes for another one is seen in one of both orders. */
static int64_t take_block(const Launch *g, Supply *supply) {
    pthread_mutex_lock(&supply->lock);
    int64_t at = supply->next < g->blocks ? supply->next++ : -1;
    int64_t number = g->first_block + (g->strict && g->turned ? g->blocks - 1 - at : at);
    bool begins = at >= 0 && number < supply->end;
    pthread_mutex_unlock(&supply->lock);
    return begins ? number : -1;
}

/* After a fault only blocks before its own still run, so that the first of all faults is found. */
static void report(Share *share) {
    Fault *first = &share->worker.launch->fault;
    pthread_mutex_lock(&share->supply->lock);
    if (!first->code || share->worker.fault.block < first->block)
        *first = share->worker.fault;
    if (first->block < share->supply->end)
        share->supply->end = first->block;
    pthread_mutex_unlock(&share->supply->lock);
    share->worker.fault.code = NO_FAULT;
}

static bool no_room(Share *share, int64_t number) {
    share->worker.fault = (Fault){NO_ROOM_FAULT, 0, number, 0, -1, 0, block_bytes(share->worker.launch), {0}};
    report(share);
    return false;
}

/* Blocks that used up a turn wait in a line behind new ones: whatever they wait for gets to run.
 * With this many of them no new one begins. */
enum { MOST_WAITING = 512 };

/* Whether no wave of a block that used up its turn can come further before something changes. */
static bool is_stuck(const Block *b, uint32_t waves) {
    for (uint32_t k = 0; k < waves; k++)
        if (b->waves[k].state == READY && !b->waves[k].spins)
            return false;
    return true;
}

static void fail_spin(Block *b, uint32_t waves) {
    Wave *first = NULL;
    uint64_t count = 0;
    for (uint32_t k = waves; k-- > 0;)
        if (b->waves[k].state == READY) {
            first = &b->waves[k];
            count++;
        }
    if (first)
        fail(first, SPIN_FAULT, -1, 0, count);
}

static void *work(void *argument) {
    Share *share = argument;
    Worker *worker = &share->worker;
    Block *first = NULL, **last = &first, *used = NULL;
    int waiting = 0, quiet = 0; /* quiet: blocks in turn that can come no further */
    uint64_t changes = 0;
    for (;;) {
        if (worker->launch->stop)
            break;
        bool more = worker->launch->cooperative || waiting < MOST_WAITING;
        int64_t number = more ? take_block(worker->launch, share->supply) : -1;
        Block *b = first;
        if (number >= 0) {
            if (!(b = start_block(worker, used, number)) && !no_room(share, number))
                break;
            used = NULL;
        } else if (b) {
            if (!(first = b->next))
                last = &first;
            waiting--;
        } else
            break;
        if (b->number < share->supply->end && !run_block(worker, b)) {
            bool stuck = worker->launch->checks & CHECK_PROGRESS && is_stuck(b, worker->launch->waves_per_block);
            quiet = stuck && worker->changes == changes ? quiet + 1 : 0;
            changes = worker->changes;
            if (quiet > waiting + 1 && share->supply->next >= worker->launch->blocks)
                fail_spin(b, worker->launch->waves_per_block);
        }
        if (b->number < share->supply->end && b->living && !worker->fault.code && !worker->launch->stop) {
            b->next = NULL;
            *last = b;
            last = &b->next;
            waiting++;
            continue;
        }
        if (worker->fault.code)
            report(share);
        abandon(b, worker->launch->waves_per_block);
        free(used);
        used = b;
    }
    for (Block *b = first, *next; b; b = next) {
        next = b->next;
        abandon(b, worker->launch->waves_per_block);
        free(b);
    }
    free(used);
    free_spare(worker);
    return NULL;
}

static void add_counts(Launch *g, Worker *worker) {
    for (uint32_t k = 0; k < g->code_count; k++)
        g->executed[k] += worker->executed[k];
    for (int k = 0; k < 4; k++)
        g->bytes[k] += worker->bytes[k];
    g->atomics += worker->atomics;
    g->cache_lines += worker->cache_lines;
    g->conflict_cycles += worker->conflict_cycles;
    free(worker->executed);
}

/* Run the blocks of a launch. Returns the fault's code. */
__attribute__((visibility("default"))) int tilewright_run(Launch *g) {
    Supply supply = {PTHREAD_MUTEX_INITIALIZER, 0, g->first_block + g->blocks};
    uint32_t threads = g->threads ? g->threads : 1;
    Share *shares = calloc(threads, sizeof *shares);
    if (!shares)
        return NO_ROOM_FAULT;
    for (uint32_t t = 0; t < threads; t++) {
        shares[t].supply = &supply;
        shares[t].worker.launch = g;
        shares[t].worker.executed = calloc(g->code_count, 8);
    }
    uint32_t started = 1;
    for (; started < threads; started++)
        if (pthread_create(&shares[started].thread, NULL, work, &shares[started]))
            break;
    work(&shares[0]);
    for (uint32_t t = 0; t < threads; t++) {
        if (t && t < started)
            pthread_join(shares[t].thread, NULL);
        add_counts(g, &shares[t].worker);
    }
    free(shares);
    return (int)g->fault.code;
}

/* The sizes of the structures that Python fills, for comparison. */
__attribute__((visibility("default"))) void tilewright_sizes(uint32_t *sizes) {
    sizes[0] = sizeof(Operand);
    sizes[1] = sizeof(Instruction);
    sizes[2] = sizeof(Permutation);
    sizes[3] = sizeof(Launch);
    sizes[4] = sizeof(Matrix);
    sizes[5] = sizeof(struct Finding);
    sizes[6] = sizeof(Cell);
    sizes[7] = sizeof(InstructionCounts);
    sizes[8] = sizeof HANDLERS / sizeof *HANDLERS;
}
