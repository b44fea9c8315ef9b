/* Reading and writing the registers of a wave. A vector source is always given as 64 dwords. */
#pragma once
#include "types.h"

#define HOT static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, unused))
/* All lanes of a wave, 32 at a time: both sizes of waves in loops that the compiler can vectorise. */
#define EACH_LANE(w, l) \
    for (int half_ = 0; half_ < (int)LANES; half_ += 32) \
        if (half_ == 0 || (w)->all >> 32) \
            _Pragma("clang loop unroll(disable)") for (int l = half_; l < half_ + 32; l++)

HOT uint64_t scalar_pair(const Wave *w, int register_) {
    uint64_t value;
    memcpy(&value, &w->s[register_], 8);
    return value;
}

HOT void set_scalar_pair(Wave *w, int register_, uint64_t value) { memcpy(&w->s[register_], &value, 8); }

/* A lane mask in scalar registers: one register for 32 lanes, a pair for 64. */
HOT uint64_t mask_in(const Wave *w, int register_) {
    return w->all >> 32 ? scalar_pair(w, register_) : w->s[register_];
}

HOT void set_mask(Wave *w, int register_, uint64_t mask) {
    if (w->all >> 32)
        set_scalar_pair(w, register_, mask);
    else
        w->s[register_] = (uint32_t)mask;
}

HOT uint64_t exec_of(const Wave *w) { return mask_in(w, EXEC); }

static uint32_t scalar32(const Wave *w, const Operand *o) {
    switch (o->kind) {
    case SCALAR: return w->s[o->index];
    case SCC: return w->scc;
    case VCCZ: return mask_in(w, VCC) == 0;
    case EXECZ: return exec_of(w) == 0;
    default: return (uint32_t)o->value;
    }
}

static uint64_t scalar64(const Wave *w, const Operand *o) {
    if (o->kind == SCALAR)
        return scalar_pair(w, o->index);
    return o->kind == CONSTANT ? o->value : scalar32(w, o);
}

/* One word of an operand: the `word`th register, or the `word`th 32 bits of a constant. */
HOT uint32_t broadcast_word(const Wave *w, const Operand *o, int word) {
    if (o->kind == SCALAR)
        return w->s[o->index + word];
    if (o->kind == CONSTANT)
        return (uint32_t)(o->value >> 32 * word);
    return word ? 0 : scalar32(w, o);
}

/* The lanes whose DPP source lane exists and may be read. */
COLD uint64_t usable(const Wave *w, const Permutation *p) {
    uint64_t exec = exec_of(w), readable = p->valid;
    for (int l = 0; !p->inactive && l < LANES; l++)
        readable &= ~((uint64_t)!(exec >> p->from[l] & 1) << l);
    return readable;
}

COLD void permute_lanes(const Wave *w, const Instruction *i, uint32_t *room) {
    const Permutation *p = &w->worker->launch->permutations[i->target];
    uint64_t readable = usable(w, p);
    uint32_t result[LANES];
    for (int l = 0; l < LANES; l++)
        result[l] = readable >> l & 1 ? room[p->from[l]] : 0;
    memcpy(room, result, sizeof result);
}

HOT bool plain(const Operand *o);

/* A source that is no plain register: the same in all lanes, or with modifiers: lanes moved, bits selected, sign changed. `sign` is the sign bit of its type; 0: none. */
COLD const uint32_t *changed(Wave *w, const Instruction *i, const Operand *o, int word, uint32_t sign, uint32_t *room) {
    if (o->kind == VECTOR)
        memcpy(room, w->v[o->index + word], LANES * 4);
    else {
        uint32_t value = broadcast_word(w, o, word);
        for (int l = 0; l < LANES; l++)
            room[l] = value;
    }
    if (plain(o))
        return room;
    if (o->flags & PERMUTED)
        permute_lanes(w, i, room);
    if (o->width != 32)
        for (int l = 0; l < LANES; l++) {
            uint32_t bits = room[l] << (32 - o->width - o->shift);
            room[l] = o->flags & SIGN_EXTEND ? (uint32_t)((int32_t)bits >> (32 - o->width)) : bits >> (32 - o->width);
        }
    for (int l = 0; l < LANES; l++) {
        room[l] &= o->flags & ABSOLUTE ? ~sign : ~0u;
        room[l] ^= o->flags & NEGATE ? sign : 0;
    }
    return room;
}

HOT bool plain(const Operand *o) { return o->flags == 0 && o->width == 32; }

/* The lanes of a source, `word` registers after its first. */
HOT const uint32_t *lanes_of(Wave *w, const Instruction *i, const Operand *o, int word, uint32_t sign, uint32_t *room) {
    if (o->kind == VECTOR && plain(o))
        return w->v[o->index + word];
    return changed(w, i, o, word, sign, room);
}

/* Write lanes of a register where `mask` is set. */
HOT void write_lanes(Wave *w, int register_, const uint32_t *value, uint64_t mask) {
    uint32_t *to = w->v[register_];
    if (mask == w->all) {
        memcpy(to, value, LANES * 4);
        return;
    }
    for (int l = 0; l < LANES; l++)
        to[l] = mask >> l & 1 ? value[l] : to[l];
}

/* A bit for each lane whose flag is not 0. */
HOT uint64_t packed_lanes(const uint8_t *flags) {
    typedef uint8_t Octets __attribute__((ext_vector_type(LANES)));
    typedef bool Bits __attribute__((ext_vector_type(LANES)));
    Octets octets;
    memcpy(&octets, flags, LANES);
    Bits bits = __builtin_convertvector(octets, Bits);
    uint64_t mask;
    memcpy(&mask, &bits, 8);
    return mask;
}

HOT int fail(Wave *w, uint32_t code, int lane, uint64_t address, uint64_t size) {
    Fault *f = &w->worker->fault;
    *f = (Fault){code, w->pc, w->block->number, (int32_t)w->number, lane, address, size, {0}};
    return STOPPED;
}

HOT int fail_descriptor(Wave *w, int register_) {
    fail(w, DESCRIPTOR_FAULT, -1, 0, 0);
    memcpy(w->worker->fault.words, &w->s[register_], 16);
    return STOPPED;
}
