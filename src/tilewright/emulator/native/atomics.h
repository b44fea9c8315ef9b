/* Atomic operations on memory and LDS, lane by lane in order. */
#pragma once
#include "functions.h"
#include "memory.h"

/* Instruction.detail: operation and type. lower_elements.py has the same order. */
enum {
    A_ADD, A_SUB, A_RSUB, A_MIN, A_MAX, A_AND, A_OR, A_XOR, A_INC, A_DEC, A_SUB_CLAMP, A_COND_SUB, A_SWAP, A_CMPSWAP,
    A_CMPST, A_MSKOR, A_PK_ADD, A_ADD_FLUSHED, A_WRAP, A_CONDXCHG,
    /* Only chosen at run time: see atomic_in_mode. */
    A_CMPSWAP_FLUSHED, A_CMPST_FLUSHED,
};
enum { T_U32, T_U64, T_I32, T_I64, T_F32, T_F64, T_F16, T_BF16 };

/* Each half is replaced by one whose highest bit is set, without that bit. */
static uint64_t exchange_marked(uint64_t old, uint64_t a) {
    uint64_t marked = (a >> 31 & 0x100000001) * 0xffffffff;
    return (old & ~marked) | (a & marked & 0x7fffffff7fffffff);
}

static uint64_t combine_whole(uint32_t op, uint64_t old, uint64_t a, uint64_t b) {
    switch (op) {
    case A_ADD: return old + a;
    case A_SUB: return old - a;
    case A_RSUB: return a - old;
    case A_MIN: return old < a ? old : a;
    case A_MAX: return old > a ? old : a;
    case A_AND: return old & a;
    case A_OR: return old | a;
    case A_XOR: return old ^ a;
    case A_INC: return old >= a ? 0 : old + 1;
    case A_DEC: return old == 0 || old > a ? a : old - 1;
    case A_SUB_CLAMP: return old < a ? 0 : old - a;
    case A_COND_SUB: return old < a ? old : old - a;
    case A_SWAP: return a;
    case A_CMPSWAP: return old == b ? a : old;
    case A_CMPST: return old == a ? b : old;
    case A_WRAP: return old >= a ? old - a : old + b;
    case A_CONDXCHG: return exchange_marked(old, a);
    default: return (old & ~a) | b;
    }
}

HOT bool compares(uint32_t op) {
    return op == A_CMPSWAP || op == A_CMPST || op == A_CMPSWAP_FLUSHED || op == A_CMPST_FLUSHED;
}

/* Compare and swap of floats, whose operands and result are flushed in some modes (see access/atomics.py). */
static uint32_t exchange_f32(uint32_t op, uint32_t old, uint32_t a, uint32_t b) {
    bool flushes = op == A_CMPSWAP_FLUSHED || op == A_CMPST_FLUSHED, first = op == A_CMPST || op == A_CMPST_FLUSHED;
    union { uint32_t u; float f; } x = {old}, new = {first ? b : a}, compared = {first ? a : b};
    if (flushes)
        x.f = flushed_f32(x.f), new.f = flushed_f32(new.f), compared.f = flushed_f32(compared.f);
    return x.f == compared.f ? new.u : x.u;
}

static uint64_t exchange_f64(uint32_t op, uint64_t old, uint64_t a, uint64_t b) {
    bool flushes = op == A_CMPSWAP_FLUSHED || op == A_CMPST_FLUSHED, first = op == A_CMPST || op == A_CMPST_FLUSHED;
    union { uint64_t u; double f; } x = {old}, new = {first ? b : a}, compared = {first ? a : b};
    if (flushes)
        x.f = flushed_f64(x.f), new.f = flushed_f64(new.f), compared.f = flushed_f64(compared.f);
    return x.f == compared.f ? new.u : x.u;
}

static uint32_t combine_f32(uint32_t op, uint32_t old, uint32_t a, uint32_t b) {
    union { uint32_t u; float f; } x = {old}, y = {a};
    if (compares(op))
        return exchange_f32(op, old, a, b);
    if (op == A_ADD_FLUSHED)
        x.f = flushed_f32(flushed_f32(x.f) + flushed_f32(y.f));
    else
        x.f = op == A_ADD ? x.f + y.f : op == A_MIN ? __builtin_fminf(x.f, y.f) : __builtin_fmaxf(x.f, y.f);
    return x.u;
}

static uint64_t combine_f64(uint32_t op, uint64_t old, uint64_t a, uint64_t b) {
    union { uint64_t u; double f; } x = {old}, y = {a};
    if (compares(op))
        return exchange_f64(op, old, a, b);
    x.f = op == A_ADD ? x.f + y.f : op == A_MIN ? __builtin_fmin(x.f, y.f) : __builtin_fmax(x.f, y.f);
    return x.u;
}

/* Two sums in one dword; bf16 is rounded from the sum of the two in f32. */
static uint32_t combine_packed(bool brain, uint32_t old, uint32_t a) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        uint16_t sum;
        if (brain) {
            union { uint32_t u; float f; } x = {old >> shift << 16}, y = {a >> shift << 16};
            sum = bf16_of_f32(x.f + y.f);
        } else {
            union { uint16_t u; _Float16 f; } x = {(uint16_t)(old >> shift)}, y = {(uint16_t)(a >> shift)};
            x.f = x.f + y.f;
            sum = x.u;
        }
        result |= (uint32_t)sum << shift;
    }
    return result;
}

static uint64_t combine(uint32_t detail, uint64_t old, uint64_t a, uint64_t b) {
    uint32_t op = detail & 255;
    switch (detail >> 8) {
    case T_I32: return (uint32_t)(op == A_MIN == ((int32_t)old < (int32_t)a) ? old : a);
    case T_I64: return op == A_MIN == ((int64_t)old < (int64_t)a) ? old : a;
    case T_F32: return combine_f32(op, (uint32_t)old, (uint32_t)a, (uint32_t)b);
    case T_F64: return combine_f64(op, old, a, b);
    case T_F16: return combine_packed(false, (uint32_t)old, (uint32_t)a);
    case T_BF16: return combine_packed(true, (uint32_t)old, (uint32_t)a);
    default: return combine_whole(op, old, a, b);
    }
}

/* A lane's operand: one register, or two for 8 bytes. */
HOT uint64_t atomic_operand(const uint32_t (*value)[LANES], uint32_t size, uint32_t number, int l) {
    if (size == 4)
        return value[number][l];
    return value[2 * number][l] | (uint64_t)value[2 * number + 1][l] << 32;
}

/* An operation as it is in the current mode of a wave: bits 4 and 6 keep subnormal sources. */
static uint32_t atomic_in_mode(const Wave *w, const Instruction *i) {
    uint32_t op = i->detail & 255, kind = i->detail >> 8;
    bool keeps = kind == T_F32 ? w->float_mode & 0x10 : kind == T_F64 ? w->float_mode & 0x40 : true;
    return keeps || !compares(op) ? i->detail : i->detail + (A_CMPSWAP_FLUSHED - A_CMPSWAP);
}

/* Do it at each place, and keep the old values. Returns how many places changed. */
static uint32_t perform(uint32_t detail, uint32_t size, uint8_t *const *place, const uint32_t (*value)[LANES],
                        uint64_t mask, uint32_t (*old)[LANES]) {
    uint32_t op = detail & 255;
    uint32_t changes = 0;
    bool two = compares(op) || op == A_MSKOR || op == A_WRAP;
    for (uint64_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        uint64_t was = 0, b = two ? atomic_operand(value, size, 1, l) : 0;
        memcpy(&was, place[l], size);
        uint64_t now = combine(detail, was, atomic_operand(value, size, 0, l), b);
        memcpy(place[l], &now, size);
        changes += was != now;
        old[0][l] = (uint32_t)was;
        old[1][l] = (uint32_t)(was >> 32);
    }
    return changes;
}

static int check_aligned(Wave *w, const uint64_t *address, uint32_t size, uint64_t mask) {
    for (uint64_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctzll(left);
        if (address[l] & (size - 1))
            return fail(w, ATOMIC_FAULT, l, address[l], size);
    }
    return NEXT;
}

/* At checked places: the memory changes now, the old value arrives later. When no lane takes part, `exec` gets 0. */
static int memory_atomic(Wave *w, const Instruction *i, const uint64_t *address, uint64_t mask, uint64_t exec) {
    Pending *p;
    uint64_t bytes = i->size * (uint64_t)__builtin_popcountll(mask);
    if (check_aligned(w, address, i->size, mask))
        return STOPPED;
    if (!(p = new_pending(w, i)))
        return fail(w, NO_ROOM_FAULT, -1, 0, sizeof *p);
    memset(p->value, 0, 2 * sizeof *p->value);
    check_access(w, UPDATES, address, i->size, mask, NULL);
    w->worker->changes += perform(atomic_in_mode(w, i), i->size, (uint8_t *const *)address,
                                  (const uint32_t(*)[LANES]) & w->v[i->in[3].index], mask, p->value);
    w->worker->atomics += (uint64_t)__builtin_popcountll(mask);
    w->worker->bytes[WRITTEN] += bytes;
    if (!(i->flags & RETURNS))
        return finish(w, p);
    w->worker->bytes[READ] += bytes;
    return deliver(w, p, i->size / 4, mask ? mask : exec);
}
