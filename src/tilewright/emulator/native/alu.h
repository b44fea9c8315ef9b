/* What the generated functions of arithmetic are made of: typed sources, and what is done with results. */
#pragma once
#include "functions.h"
#include "wave.h"

/* Bits of a register as a number of a type, and back. */
HOT uint8_t as_u8(uint32_t bits) { return (uint8_t)bits; }
HOT int8_t as_i8(uint32_t bits) { return (int8_t)bits; }
HOT uint16_t as_u16(uint32_t bits) { return (uint16_t)bits; }
HOT int16_t as_i16(uint32_t bits) { return (int16_t)bits; }
HOT uint32_t as_u32(uint32_t bits) { return bits; }
HOT int32_t as_i32(uint32_t bits) { return (int32_t)bits; }
HOT uint64_t as_u64(uint64_t bits) { return bits; }
HOT int64_t as_i64(uint64_t bits) { return (int64_t)bits; }
HOT _Float16 as_f16(uint32_t bits) { return __builtin_bit_cast(_Float16, (uint16_t)bits); }
HOT float as_f32(uint32_t bits) { return __builtin_bit_cast(float, bits); }
HOT double as_f64(uint64_t bits) { return __builtin_bit_cast(double, bits); }
HOT uint32_t bits_u8(uint8_t value) { return value; }
HOT uint32_t bits_i8(int8_t value) { return (uint8_t)value; }
HOT uint32_t bits_u16(uint16_t value) { return value; }
HOT uint32_t bits_i16(int16_t value) { return (uint16_t)value; }
HOT uint32_t bits_u32(uint32_t value) { return value; }
HOT uint32_t bits_i32(int32_t value) { return (uint32_t)value; }
HOT uint64_t bits_u64(uint64_t value) { return value; }
HOT uint64_t bits_i64(int64_t value) { return (uint64_t)value; }
HOT uint32_t bits_f16(_Float16 value) { return __builtin_bit_cast(uint16_t, value); }
HOT uint32_t bits_f32(float value) { return __builtin_bit_cast(uint32_t, value); }
HOT uint64_t bits_f64(double value) { return __builtin_bit_cast(uint64_t, value); }

/* Kinds of results, for what modifiers do to them. */
enum { BITS_8 = 8, BITS_16 = 16, BITS_32 = 32, F16, F32 };

/* FLOAT_MODE: which subnormal numbers become zero. Two bits for f32, two for f16 and f64: the lower one keeps those of
 * sources, the upper one those of results. */
HOT bool flushes_f32(const Wave *w) { return !(w->float_mode & 0x10); }
HOT bool flushes_f16_f64(const Wave *w) { return !(w->float_mode & 0x40); }
HOT bool flushes_result_f32(const Wave *w) { return !(w->float_mode & 0x20); }
HOT bool flushes_result_f16_f64(const Wave *w) { return !(w->float_mode & 0x80); }

/* Output modifiers have an effect only on results whose subnormals become zero, and not in IEEE mode. */
HOT int omod_f32(const Wave *w, const Instruction *i) { return w->float_mode & 0x220 ? 0 : i->omod; }
HOT int omod_f16_f64(const Wave *w, const Instruction *i) { return w->float_mode & 0x280 ? 0 : i->omod; }
/* FP16_OVFL: numbers too large for f16, fp8 or bf8 become the largest number. */
HOT bool limits_overflow(const Wave *w) { return w->float_mode >> 23 & 1; }

HOT uint32_t flush_bits(uint32_t bits, uint32_t exponent, uint32_t sign) { return bits & exponent ? bits : bits & sign; }

COLD void flush_lanes(const uint32_t *from, uint32_t *to, uint32_t exponent, uint32_t sign) {
    for (int l = 0; l < LANES; l++)
        to[l] = flush_bits(from[l], exponent, sign);
}

COLD void flush_pairs(const uint32_t *low, const uint32_t *high, uint32_t *to_low, uint32_t *to_high) {
    for (int l = 0; l < LANES; l++) {
        bool keep = high[l] & 0x7ff00000;
        to_low[l] = keep ? low[l] : 0;
        to_high[l] = keep ? high[l] : high[l] & 0x80000000u;
    }
}

#define SOURCE(name, k, sign) \
    _Alignas(64) uint32_t room_##name[LANES]; \
    const uint32_t *lanes_##name = lanes_of(w, i, &i->in[k], 0, sign, room_##name);

#define SOURCE_f32(name, k, sign) \
    SOURCE(name, k, sign) \
    if (__builtin_expect(flushes_f32(w), 0)) { \
        flush_lanes(lanes_##name, room_##name, 0x7f800000u, 0x80000000u); \
        lanes_##name = room_##name; \
    }

#define SOURCE_f16(name, k, sign) \
    SOURCE(name, k, sign) \
    if (__builtin_expect(flushes_f16_f64(w), 0)) { \
        flush_lanes(lanes_##name, room_##name, 0x7c00u, 0x8000u); \
        lanes_##name = room_##name; \
    }

#define SOURCE_64(name, k, is_float, flushes) \
    _Alignas(64) uint32_t low_room_##name[LANES], high_room_##name[LANES]; \
    Operand operand_##name = i->in[k]; \
    operand_##name.flags &= (uint8_t)~(NEGATE | ABSOLUTE); \
    const uint32_t *low_##name = lanes_of(w, i, &operand_##name, 0, 0, low_room_##name); \
    const uint32_t *high_##name = lanes_of(w, i, &i->in[k], 1, is_float ? 0x80000000u : 0, high_room_##name); \
    if (is_float && flushes && __builtin_expect(flushes_f16_f64(w), 0)) { \
        flush_pairs(low_##name, high_##name, low_room_##name, high_room_##name); \
        low_##name = low_room_##name; \
        high_##name = high_room_##name; \
    }

/* The lanes that a result is written to: those of exec that DPP does not exclude. */
HOT uint64_t written(const Wave *w, const Instruction *i) {
    uint64_t exec = exec_of(w);
    if (__builtin_expect(!(i->flags & MASKED), 1))
        return exec;
    const Permutation *p = &w->worker->launch->permutations[i->target];
    return exec & p->enabled & (p->zero ? ~0ull : usable(w, p));
}

COLD int finish_mask(Wave *w, const Instruction *i, const uint8_t *flags) {
    uint64_t mask = packed_lanes(flags) & exec_of(w);
    set_mask(w, i->out.index, mask);
    if (i->flags & WRITES_EXEC)
        set_mask(w, EXEC, mask);
    return NEXT;
}

COLD void finish_second(Wave *w, const Instruction *i, const uint8_t *flags) {
    if (i->second.kind == SCALAR)
        set_mask(w, i->second.index, packed_lanes(flags) & exec_of(w));
}

COLD void scaled_f32(const Instruction *i, int omod, uint32_t *out) {
    for (int l = 0; l < LANES; l++) {
        float value = as_f32(out[l]);
        value = omod == 1 ? value * 2 : omod == 2 ? value * 4 : omod == 3 ? value / 2 : value;
        if (i->flags & CLAMP)
            value = value > 0 ? (value < 1 ? value : 1) : 0;
        out[l] = bits_f32(value);
    }
}

COLD void scaled_f16(const Instruction *i, int omod, uint32_t *out) {
    for (int l = 0; l < LANES; l++) {
        _Float16 value = as_f16(out[l]);
        value = omod == 1 ? value * 2 : omod == 2 ? value * 4 : omod == 3 ? value / 2 : value;
        if (i->flags & CLAMP)
            value = value > 0 ? (value < 1 ? value : (_Float16)1) : (_Float16)0;
        out[l] = bits_f16(value);
    }
}

/* A result that goes to some bits of its register: SDWA's dst_sel, or half a register. */
COLD void placed(Wave *w, const Instruction *i, uint32_t *out) {
    const Operand *o = &i->out;
    uint32_t mask = (o->width == 32 ? ~0u : (1u << o->width) - 1) << o->shift;
    const uint32_t *old = w->v[o->index];
    for (int l = 0; l < LANES; l++) {
        uint32_t word = out[l] << o->shift & mask;
        if (i->flags & DST_KEEP)
            word |= old[l] & ~mask;
        else if (i->flags & DST_SEXT) {
            uint32_t unused = 32 - o->width - o->shift;
            word = (uint32_t)((int32_t)(word << unused) >> unused);
        }
        out[l] = word;
    }
}

COLD int finish_32(Wave *w, const Instruction *i, uint32_t *out, int kind) {
    if (kind == F32 && __builtin_expect(i->omod || i->flags & CLAMP, 0))
        scaled_f32(i, omod_f32(w, i), out);
    if (kind == F32 && __builtin_expect(flushes_result_f32(w), 0))
        flush_lanes(out, out, 0x7f800000u, 0x80000000u);
    if (__builtin_expect(i->flags & PLACED, 0))
        placed(w, i, out);
    write_lanes(w, i->out.index, out, written(w, i));
    return NEXT;
}

COLD int finish_16(Wave *w, const Instruction *i, uint32_t *out, int kind) {
    if (kind == F16 && __builtin_expect(i->omod || i->flags & CLAMP, 0))
        scaled_f16(i, omod_f16_f64(w, i), out);
    if (kind == F16 && __builtin_expect(flushes_result_f16_f64(w), 0))
        flush_lanes(out, out, 0x7c00u, 0x8000u);
    if (__builtin_expect(i->flags & PLACED, 0))
        placed(w, i, out);
    write_lanes(w, i->out.index, out, written(w, i));
    return NEXT;
}

COLD void scaled_f64(const Instruction *i, int omod, uint32_t *low, uint32_t *high) {
    for (int l = 0; l < LANES; l++) {
        double value = as_f64((uint64_t)high[l] << 32 | low[l]);
        value = omod == 1 ? value * 2 : omod == 2 ? value * 4 : omod == 3 ? value / 2 : value;
        if (i->flags & CLAMP)
            value = value > 0 ? (value < 1 ? value : 1) : 0;
        uint64_t bits = bits_f64(value);
        low[l] = (uint32_t)bits;
        high[l] = (uint32_t)(bits >> 32);
    }
}

COLD int finish_64(Wave *w, const Instruction *i, uint32_t *low, uint32_t *high, bool is_float) {
    if (is_float && __builtin_expect(i->flags & CLAMP || i->omod, 0))
        scaled_f64(i, omod_f16_f64(w, i), low, high);
    if (is_float && __builtin_expect(flushes_result_f16_f64(w), 0))
        flush_pairs(low, high, low, high);
    write_lanes(w, i->out.index, low, written(w, i));
    write_lanes(w, i->out.index + 1, high, written(w, i));
    return NEXT;
}

/* Scalars. */
HOT uint32_t get_scalar_u32(const Wave *w, const Operand *o) { return scalar32(w, o); }
HOT int32_t get_scalar_i32(const Wave *w, const Operand *o) { return (int32_t)scalar32(w, o); }
HOT uint16_t get_scalar_u16(const Wave *w, const Operand *o) { return (uint16_t)scalar32(w, o); }
HOT int16_t get_scalar_i16(const Wave *w, const Operand *o) { return (int16_t)scalar32(w, o); }
HOT uint64_t get_scalar_u64(const Wave *w, const Operand *o) { return scalar64(w, o); }
HOT int64_t get_scalar_i64(const Wave *w, const Operand *o) { return (int64_t)scalar64(w, o); }
HOT uint32_t signed_scalar(const Wave *w, const Operand *o, uint32_t sign) {
    uint32_t bits = scalar32(w, o) & (o->flags & ABSOLUTE ? ~sign : ~0u);
    return bits ^ (o->flags & NEGATE ? sign : 0);
}
HOT float get_scalar_f32(const Wave *w, const Operand *o) { return as_f32(signed_scalar(w, o, 0x80000000u)); }
HOT _Float16 get_scalar_f16(const Wave *w, const Operand *o) { return as_f16(signed_scalar(w, o, 0x8000u)); }

HOT float flushed_source_f32(const Wave *w, float value) {
    return flushes_f32(w) ? as_f32(flush_bits(bits_f32(value), 0x7f800000u, 0x80000000u)) : value;
}
HOT _Float16 flushed_source_f16(const Wave *w, _Float16 value) {
    return flushes_f16_f64(w) ? as_f16(flush_bits(bits_f16(value), 0x7c00u, 0x8000u)) : value;
}
HOT float flushed_result_f32(const Wave *w, float value) {
    return flushes_result_f32(w) ? as_f32(flush_bits(bits_f32(value), 0x7f800000u, 0x80000000u)) : value;
}
HOT _Float16 flushed_result_f16(const Wave *w, _Float16 value) {
    return flushes_result_f16_f64(w) ? as_f16(flush_bits(bits_f16(value), 0x7c00u, 0x8000u)) : value;
}

HOT void set_scalar_u32(Wave *w, const Instruction *i, uint32_t value) { w->s[i->out.index] = value; }
HOT void set_scalar_i32(Wave *w, const Instruction *i, int32_t value) { w->s[i->out.index] = (uint32_t)value; }
HOT void set_scalar_f32(Wave *w, const Instruction *i, float value) { w->s[i->out.index] = bits_f32(value); }
HOT void set_scalar_f16(Wave *w, const Instruction *i, _Float16 value) { w->s[i->out.index] = bits_f16(value); }
HOT void set_scalar_u64(Wave *w, const Instruction *i, uint64_t value) { set_scalar_pair(w, i->out.index, value); }
HOT void set_scalar_i64(Wave *w, const Instruction *i, int64_t value) { set_scalar_pair(w, i->out.index, (uint64_t)value); }
