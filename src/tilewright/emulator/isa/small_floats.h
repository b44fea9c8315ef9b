/* Floats of 4, 6 and 8 bits, also with a scale: numbers are divided by it when they are encoded, and multiplied by it
 * when they are decoded. small_floats.py has the same over NumPy arrays. */
#pragma once

/* The bits of the fraction, the bias, the sign, the codes of the largest number, of what follows it and of NaN. */
typedef struct { int fraction, bias; u8 sign, largest, beyond, nan; bool minus_zero; } SmallFloat;

/* What becomes of numbers that are too large: see small_floats.py. */
enum { KEEP, LIMIT, LIMIT_ALL };

static const f64 SMALL_HUGE = 1e30; /* larger than every number of these formats */
static inline int small_exponent(f64 x) {
    int power = -1000; /* of zero */
    if (x != 0 && fabs(x) < SMALL_HUGE)
        frexp(x, &power);
    return power - 1;
}
/* The code of a number from its exponent and how many steps of the format it is rounded to. */
static inline u8 small_finish(f64 x, int exponent, u32 steps, const SmallFloat *k, int limit) {
    u8 sign = bits64(x) >> 63 ? k->sign : 0;
    u8 marked = k->minus_zero ? sign : 0;
    if (x != x)
        return k->nan | marked;
    int least = exponent < 1 - k->bias ? 1 - k->bias : exponent;
    u32 code = ((u32)(least + k->bias - 1) << k->fraction) + steps;
    if (code > k->largest || fabs(x) >= SMALL_HUGE)
        return limit == LIMIT_ALL || (limit == LIMIT && !isinf(x)) ? (u8)(k->largest | sign) : k->beyond | marked;
    return code || k->minus_zero ? (u8)(code | sign) : 0;
}
/* `cut_off` rounds towards zero, else to the nearest, ties to even. */
static inline u8 small_encode(f64 x, const SmallFloat *k, bool cut_off, int limit) {
    int exponent = small_exponent(x), least = exponent < 1 - k->bias ? 1 - k->bias : exponent;
    f64 steps = fabs(x) < SMALL_HUGE ? ldexp(fabs(x), k->fraction - least) : 0;
    return small_finish(x, exponent, (u32)(cut_off ? floor(steps) : rint(steps)), k, limit);
}
static inline f64 small_decode(u8 code, const SmallFloat *k) {
    u8 size = code & (k->sign - 1);
    f64 sign = code & k->sign ? -1.0 : 1.0;
    if (k->minus_zero ? size > k->largest : code == k->sign)
        return size == k->beyond && k->beyond != k->nan ? sign * INFINITY : copysign(NAN, sign);
    int exponent = size >> k->fraction, part = size & ((1 << k->fraction) - 1);
    if (exponent)
        part += 1 << k->fraction;
    else
        exponent = 1;
    return sign * ldexp(part, exponent - k->bias - k->fraction);
}
/* Random bits are added below the last bit that is kept, then the rest is cut off. */
static inline u8 small_random(f32 x, u32 random, const SmallFloat *k, int limit) {
    f32 moved = isfinite(x) ? float32(bits32(x) + (random >> (9 + k->fraction))) : x;
    return small_encode((f64)moved, k, true, limit);
}
/* The same for numbers with so many fraction bits and a scale: see encode_scaled_random in small_floats.py. */
static inline u8 small_scaled_random(f64 x, u32 random, int bits, const SmallFloat *k, int limit) {
    int exponent = small_exponent(x), below = 1 - k->bias - exponent;
    u32 fraction = fabs(x) < SMALL_HUGE ? (u32)ldexp(fabs(x), bits - exponent) : 0;
    u32 total = (fraction >> (below < 0 ? 0 : below > 31 ? 31 : below)) + (random >> (32 - bits + k->fraction));
    return small_finish(x, exponent, total >> (bits - k->fraction), k, limit);
}

/* The exponent of an f32 is the scale; that of infinity and NaN makes everything NaN. */
static inline f64 scale_of(f32 x) {
    int exponent = (int)(bits32(x) >> 23 & 0xFF);
    return exponent == 0xFF ? NAN : ldexp(1.0, exponent - 127);
}
static inline f64 scaled_by(f64 x, f32 scale) { return scale_of(scale) != scale_of(scale) ? NAN : x * scale_of(scale); }
/* A NaN has the sign of x, too. */
static inline f64 divided_by(f32 x, f32 scale) { return copysign((f64)x / scale_of(scale), (f64)x); }
static inline u32 next_random(u32 x) { return x << 1 ^ (x >> 31 ? 197u : 0); }

#define SMALL(name, ...) \
    static const SmallFloat name##_format = {__VA_ARGS__}; \
    static inline f32 f32_of_##name(u8 code) { return (f32)small_decode(code, &name##_format); } \
    static inline u8 name##_of_f32(f32 x) { return small_encode((f64)x, &name##_format, false, KEEP); } \
    static inline u8 name##_limited(f32 x) { return small_encode((f64)x, &name##_format, false, LIMIT); } \
    static inline u8 name##_clamped(f32 x) { return small_encode((f64)x, &name##_format, false, LIMIT_ALL); } \
    static inline u8 name##_random(f32 x, u32 random) { return small_random(x, random, &name##_format, KEEP); } \
    static inline u8 name##_random_limited(f32 x, u32 random) { return small_random(x, random, &name##_format, LIMIT); } \
    static inline u8 name##_random_clamped(f32 x, u32 random) { \
        return small_random(x, random, &name##_format, LIMIT_ALL); \
    } \
    static inline f64 f64_of_##name(u8 code, f32 scale) { return scaled_by(small_decode(code, &name##_format), scale); } \
    static inline u8 name##_scaled(f32 x, f32 scale) { \
        return small_encode(divided_by(x, scale), &name##_format, false, KEEP); \
    } \
    static inline u8 name##_scaled_clamped(f32 x, f32 scale) { \
        return small_encode(divided_by(x, scale), &name##_format, false, LIMIT_ALL); \
    } \
    static inline u8 name##_scaled_random(f32 x, u32 random, f32 scale, int bits) { \
        return small_scaled_random(divided_by(x, scale), random, bits, &name##_format, KEEP); \
    } \
    static inline u8 name##_scaled_random_clamped(f32 x, u32 random, f32 scale, int bits) { \
        return small_scaled_random(divided_by(x, scale), random, bits, &name##_format, LIMIT_ALL); \
    }
SMALL(fp8_fnuz, 3, 8, 0x80, 0x7F, 0x80, 0x80, false)
SMALL(bf8_fnuz, 2, 16, 0x80, 0x7F, 0x80, 0x80, false)
SMALL(fp8_ocp, 3, 7, 0x80, 0x7E, 0x7F, 0x7F, true)
SMALL(bf8_ocp, 2, 15, 0x80, 0x7B, 0x7C, 0x7E, true)
/* Without infinities and NaN: both become the largest number (HIP, amd_hip_ocp_host.hpp). */
SMALL(fp6_ocp, 3, 1, 0x20, 0x1F, 0x1F, 0x1F, true)
SMALL(bf6_ocp, 2, 3, 0x20, 0x1F, 0x1F, 0x1F, true)
SMALL(fp4_ocp, 1, 1, 0x08, 0x07, 0x07, 0x07, true)
#undef SMALL

/* Four products of bytes, which are exact, added one after the other. */
static inline f32 dot_small(u32 a, u32 b, f32 c, const SmallFloat *first, const SmallFloat *second) {
    for (int place = 0; place < 32; place += 8)
        c += (f32)small_decode((u8)(a >> place), first) * (f32)small_decode((u8)(b >> place), second);
    return c;
}
static inline f32 dot4_f32_fp8_fp8(u32 a, u32 b, f32 c) { return dot_small(a, b, c, &fp8_ocp_format, &fp8_ocp_format); }
static inline f32 dot4_f32_fp8_bf8(u32 a, u32 b, f32 c) { return dot_small(a, b, c, &fp8_ocp_format, &bf8_ocp_format); }
static inline f32 dot4_f32_bf8_fp8(u32 a, u32 b, f32 c) { return dot_small(a, b, c, &bf8_ocp_format, &fp8_ocp_format); }
static inline f32 dot4_f32_bf8_bf8(u32 a, u32 b, f32 c) { return dot_small(a, b, c, &bf8_ocp_format, &bf8_ocp_format); }
