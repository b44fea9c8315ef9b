/* What the parts of the engine share: instructions as lower.py writes them, waves, and faults.
 * layout.py mirrors the structures that Python fills; a test compares their sizes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 64, SCALARS = 128, VCC = 106, M0 = 124, EXEC = 126, QUEUES = 8, WIDEST = 32 };
/* More than any GPU has: 160 KiB. */
enum { MOST_LDS_DWORDS = 1 << 16 };

/* What an operand is. */
enum { NOTHING, VECTOR, SCALAR, CONSTANT, SCC, VCCZ, EXECZ, LANE_MASK };
/* Operand.flags */
enum { NEGATE = 1, ABSOLUTE = 2, SIGN_EXTEND = 4, PERMUTED = 8 };

typedef struct {
    uint8_t kind;
    uint8_t flags;
    uint8_t shift; /* the wanted bits begin here … */
    uint8_t width; /* … and are as many; 32 is the whole register */
    int32_t index; /* of the register, or of its first one */
    uint64_t value;
} Operand;

/* Instruction.flags, by kind of instruction. */
enum {
    /* arithmetic */
    CLAMP = 1,
    PLACED = 2,      /* the result goes to some bits of its register … */
    DST_KEEP = 4,    /* … and the others stay as they are, … */
    DST_SEXT = 8,    /* … or get its sign; else they are cleared */
    WRITES_EXEC = 16,
    MASKED = 32,     /* a DPP mask says which lanes are written */
    /* memory */
    SIGNED = 1, D16 = 2, D16_HIGH = 4, RETURNS = 8, LDS_DMA = 16, OFFEN = 32, IDXEN = 64, TWO = 128,
    SCALED = 256,    /* a scalar offset counts 64 bytes */
};

/* Registers that an instruction writes at once; `kind` as in an operand. */
enum { MOST_WRITTEN = 4 };
typedef struct {
    uint8_t kind;
    uint8_t count;
    int16_t first;
} Written;

typedef struct {
    uint32_t op;
    uint32_t flags;
    Operand out, second;
    Operand in[4];
    int64_t offset;
    int64_t offset1;
    uint32_t size;   /* bytes per lane of a memory instruction */
    uint32_t target; /* index of the instruction to go to; of the side table of a matrix instruction or permutation */
    uint32_t detail; /* what the kind of instruction needs besides */
    int16_t omod;    /* 1: times 2, 2: times 4, 3: by 2 */
    uint8_t queue;   /* which counter of the GPU a memory instruction occupies */
    uint8_t scope;   /* what it means for other waves, see shadow.h */
    uint8_t vector;  /* s_setvskip skips it */
    uint8_t wait[QUEUES]; /* most that may be left in each queue; 255: any number */
    Written written[MOST_WRITTEN]; /* those with a count come first */
} Instruction;

/* Where a DPP source lane is, and what happens to lanes without one. */
typedef struct {
    uint8_t from[LANES];
    uint64_t valid;   /* lanes whose source lane exists */
    uint64_t enabled; /* lanes that row_mask and bank_mask let write */
    uint32_t zero;    /* bound_ctrl: lanes without a source read 0 */
    uint32_t inactive; /* fetch_inactive: source lanes that exec disables are read all the same */
} Permutation;

enum { READY, AT_BARRIER, ENDED };
/* What an instruction returns to the loop. */
enum { NEXT, JUMPED, YIELDED, STOPPED };
/* What went wrong; faults.py has the same numbers. */
enum {
    NO_FAULT, MEMORY_FAULT, LDS_FAULT, ALIGNMENT_FAULT, UNKNOWN_FAULT, LOOP_FAULT, BARRIER_FAULT, JUMP_FAULT,
    ROUNDING_FAULT, DESCRIPTOR_FAULT, SCRATCH_FAULT, TRAP_FAULT, NO_ROOM_FAULT, ATOMIC_FAULT,
    INACTIVE_FAULT, HALVES_FAULT, SPIN_FAULT, INDEX_FAULT, COUNT_FAULT, OUTSIDE_FAULT,
};

typedef struct {
    uint32_t code;
    uint32_t instruction;
    int64_t block;
    int32_t wave;
    int32_t lane; /* -1: none */
    uint64_t address;
    uint64_t size;
    uint32_t words[4]; /* of a buffer's descriptor */
} Fault;

typedef struct { uint64_t start, end; } Range; /* addresses */

/* A memory instruction whose effect is not visible yet (strict mode). */
struct Wave;
typedef struct Pending {
    struct Pending *next;
    const Instruction *instruction;
    void (*commit)(struct Wave *, struct Pending *);   /* makes it visible; NULL: there is nothing to see */
    void (*in_lds)(struct Wave *, struct Pending *);   /* what it does to the LDS; NULL: nothing that the wave sees early */
    bool in_order;
    bool writes_lds;
    uint8_t places;       /* in the LDS, per lane */
    uint8_t size;         /* bytes at each of them */
    uint32_t count;       /* registers */
    uint32_t left_out;    /* a bit for each register among them that it does not write */
    uint32_t detail;      /* of an atomic operation, in the mode of its wave */
    uint64_t mask;
    uint32_t place[2][LANES];
    uint32_t value[WIDEST][LANES];
    uint32_t before[4][LANES]; /* what was at the places */
} Pending;

/* All registers that effects in it will write are between `from` and `to`. */
typedef struct { Pending *first, *last; uint32_t length; int from, to; } Queue;

typedef struct Launch Launch;
typedef struct Worker Worker;
typedef struct Block Block;

typedef struct Wave {
    uint32_t (*v)[LANES];
    _Alignas(64) uint32_t s[SCALARS];
    uint32_t scc;
    uint32_t pc; /* index of the next instruction */
    uint32_t float_mode;
    bool skips;      /* vector instructions */
    uint32_t state;
    uint32_t number; /* in its block */
    uint32_t phase;  /* of the barrier, when this wave signalled */
    uint32_t grid_phase; /* of the grid's barrier, when this wave arrived */
    bool at_grid;        /* whether it waits there */
    uint64_t all;    /* a bit for each lane that the wave has */
    uint64_t began;  /* the lanes that it began with */
    uint32_t signals, passed;   /* barriers that it signalled, and that it waited for */
    uint32_t waits, releases;   /* see shadow.h */
    uint64_t stores, stores_waited;
    bool written_back;
    uint64_t spin_state;        /* digest of its registers at the end of its last turn */
    uint32_t spin_pc;
    bool spins;
    uint64_t executed;
    uint8_t *scratch; /* private memory of its lanes, one after another */
    uint64_t scratch_address;
    Block *block;
    Worker *worker;
    Queue queue[QUEUES];
    uint32_t busy; /* a bit for each queue that is not empty */
} Wave;

struct Block {
    int64_t number;
    uint8_t *lds;
    uint32_t living;
    uint32_t arrived;
    uint32_t phase;
    bool gives_way; /* to other blocks, before its turn is over */
    struct Cell *cells;  /* of the LDS, see shadow.h; NULL: not checked */
    uint8_t *defined;
    uint32_t *known;     /* [waves][waves]: waits of another wave up to which a wave knows its accesses */
    Wave *waves;
    Block *next;
};

/* Of one instruction, in a launch with a profile. */
typedef struct {
    uint64_t lanes;          /* active lanes, summed over its executions */
    uint64_t bytes[4];       /* see counters.h */
    uint64_t atomics, cache_lines, conflict_cycles;
} InstructionCounts;

/* One launch, as run_blocks.py describes it. */
struct Launch {
    const Instruction *code;
    uint32_t code_count;
    uint32_t registers;      /* vector registers of a wave */
    const uint32_t *at;      /* instruction index by (address - code_base) / 4; ~0: none */
    uint64_t at_count;
    uint64_t code_base;
    const Range *ranges;     /* allocations, ascending */
    uint64_t range_count;
    const Permutation *permutations;
    const void *matrices;
    const uint32_t *scalars; /* first values, [blocks][waves][SCALARS] */
    const uint32_t *vectors; /* first values of the first registers, [waves][first_vectors][LANES] */
    uint32_t first_vectors;
    uint32_t waves_per_block;
    int64_t first_block;
    int64_t blocks;
    uint32_t lds_bytes;
    uint32_t scratch_bytes;  /* per lane */
    uint64_t scratch;        /* where the private memory of the first wave begins */
    uint32_t lanes;
    uint32_t strict;
    uint32_t turned;         /* strict mode: even blocks run their waves downwards, not odd ones; loads and copies to LDS arrive early */
    uint32_t detailed;
    uint32_t float_mode;
    uint32_t entry;
    uint32_t poison;
    uint32_t line_bytes;
    uint32_t banks;
    uint32_t threads;
    uint32_t matrix_flush;   /* the GPU's matrix instructions flush subnormal numbers */
    uint32_t dma_mask;       /* bits of M0 that count for copies to the LDS */
    uint32_t gfx9;           /* the GPU's generation: descriptors of buffers and the order of flat accesses differ */
    uint32_t cooperative;    /* all blocks run together */
    uint32_t grid_arrived;   /* waves at the grid's barrier */
    uint32_t grid_phase;     /* how often all have arrived there */
    volatile uint64_t stop;  /* set from outside: give up */
    uint64_t limit;          /* wave instructions */
    uint8_t capacity[QUEUES]; /* most that a counter can count */
    uint64_t *executed;      /* waves that ran each instruction */
    InstructionCounts *profile; /* of each instruction, or NULL; with it, the launch has one thread */
    uint32_t *paths;         /* of the first waves of the grid: how many runs, whether more followed, and each run's
                              * first instruction and length; with a profile only */
    uint32_t path_waves;
    uint32_t path_room;      /* runs of a wave */
    uint64_t bytes[4];       /* see counters.h */
    uint64_t atomics;        /* active lanes of atomic instructions */
    uint64_t cache_lines;
    uint64_t conflict_cycles;
    uint32_t checks;         /* see shadow.h */
    uint32_t needs_writeback; /* a release at device scope writes a cache back */
    uint32_t scoped_stores;  /* stores tell their scope */
    uint32_t finding_room, finding_count;
    uint32_t findings_lost;
    const struct Shadow *shadows; /* of the allocations */
    struct Finding *findings;
    struct Checker *checker;
    Fault fault;
};

/* One thread's share of a launch. */
struct Worker {
    Launch *launch;
    uint64_t *executed;
    uint64_t total;
    uint64_t bytes[4];
    uint64_t atomics;
    uint64_t cache_lines;
    uint64_t conflict_cycles;
    uint64_t recent_start, recent_end; /* the allocation of the last access */
    uint64_t recent;                   /* its index */
    uint64_t changes;                  /* of memory and LDS, and arrivals at barriers */
    Pending *spare;
    uint64_t touched[MOST_LDS_DWORDS / 64]; /* a bit for each dword of the LDS, see counters.h */
    Fault fault;
};
