/* What the checks of the sanitizer keep and report: accesses, cells, findings. */
#pragma once
#include "wave.h"

enum { CHECK_UNINITIALIZED = 1, CHECK_RACES = 2, CHECK_BARRIERS = 4, CHECK_PROGRESS = 8 };
/* Finding.kind; native_findings.py has the same order. */
enum { UNINITIALIZED_READ, RACE, PARTIAL_BARRIER, MISSED_BARRIER };
/* Instruction.scope; memory_scopes.py has the same numbers. */
enum { COHERENT = 1, WRITES_BACK = 2, INVALIDATES = 4, WAITS_FOR_STORES = 8, WAITS_FOR_LDS = 16 };
/* Access.flags */
enum { ATOMIC = 1, BYPASSES = 2, LATE = 4, SYNCHRONIZES = 8 };
enum { MOST_SIGNALS = 0xffff };

typedef struct {
    uint32_t block; /* number + 1; 0: no access */
    uint32_t instruction : 20, lane : 6, wave : 6;
    uint16_t signals;  /* of barriers, before the access */
    uint16_t releases; /* of the wave, before it */
    uint32_t waits : 24, mask : 4, flags : 4; /* mask: bytes of the dword */
} Access;

typedef struct Cell { Access write, read[2]; } Cell;

/* Of an allocation: a cell per dword and an octet per byte, which is not 0 when it was written. NULL: not checked. */
struct Shadow { Cell *cells; uint8_t *defined; };

/* Launch.findings */
struct Finding {
    uint32_t kind;
    uint32_t in_lds;
    uint32_t instruction, other_instruction;
    int64_t block, other_block;
    int32_t wave, lane, other_wave, other_lane;
    uint32_t writes, other_writes; /* 0: read, 1: write, 2: atomic */
    uint32_t flags;                /* of the earlier access */
    uint32_t size;
    uint64_t address;
    uint64_t count;
};

HOT uint32_t checks_of(const Wave *w) { return w->worker->launch->checks; }

static struct Finding *find_finding(Launch *g, uint32_t kind, uint32_t instruction, uint32_t other) {
    for (uint32_t k = 0; k < g->finding_count; k++) {
        struct Finding *f = &g->findings[k];
        if (f->kind == kind && f->instruction == instruction && f->other_instruction == other) {
            f->count++;
            return NULL;
        }
    }
    if (g->finding_count == g->finding_room) {
        g->findings_lost++;
        return NULL;
    }
    struct Finding *f = &g->findings[g->finding_count++];
    *f = (struct Finding){.kind = kind, .instruction = instruction, .other_instruction = other, .count = 1};
    return f;
}

HOT Access make_access(const Wave *w, int lane, uint32_t flags) {
    uint32_t signals = w->signals < MOST_SIGNALS ? w->signals : MOST_SIGNALS;
    return (Access){
        .block = (uint32_t)w->block->number + 1, .instruction = w->pc, .lane = (uint32_t)lane & 63, .wave = w->number,
        .signals = (uint16_t)signals, .releases = (uint16_t)w->releases, .waits = w->waits, .mask = 15, .flags = flags,
    };
}
