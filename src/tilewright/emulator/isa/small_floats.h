/* Floats of 4, 6 and 8 bits, also with a scale: numbers are divided by it when they are encoded, and multiplied by it
 * when they are decoded. small_floats.py has the same over NumPy arrays. */
#pragma once

/* The bits of the fraction, the bias, the sign, the codes of the largest number, of what follows it and of NaN. */
typedef struct { int fraction, bias; u8 sign, largest, beyond, nan; bool minus_zero; } SmallFloat;

/* What becomes of numbers that are too large: see small_floats.py. */
enum { KEEP, LIMIT, LIMIT_ALL };

/* `cut_off` rounds towards zero, else to the nearest, ties to even. */
static inline u8 small_encode(f64 x, const SmallFloat *k, bool cut_off, int limit) {
    u8 sign = bits64(x) >> 63 ? k->sign : 0;
    u8 marked = k->minus_zero ? sign : 0;
    if (x != x)
        return k->nan | marked;
    f64 size = fabs(x);
    bool limited = limit == LIMIT_ALL || (limit == LIMIT && !isinf(size));
    u8 beyond = limited ? (u8)(k->largest | sign) : k->beyond | marked;
    if (size > 1e30)
        return beyond;
    int power = -1000; /* of zero */
    if (size != 0)
        frexp(size, &power);
    int least = 1 - k->bias, exponent = power - 1 < least ? least : power - 1;
    f64 steps = ldexp(size, k->fraction - exponent);
    u32 code = ((u32)(exponent + k->bias - 1) << k->fraction) + (u32)(cut_off ? floor(steps) : rint(steps));
    if (code > k->largest)
        return beyond;
    return code || k->minus_zero ? (u8)(code | sign) : 0;
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

/* The exponent of an f32 is the scale; that of infinity and NaN makes everything NaN. */
static inline f64 scale_of(f32 x) {
    int exponent = (int)(bits32(x) >> 23 & 0xFF);
    return exponent == 0xFF ? NAN : ldexp(1.0, exponent - 127);
}
static inline f64 scaled_by(f64 x, f32 scale) { return scale_of(scale) != scale_of(scale) ? NAN : x * scale_of(scale); }
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
        return small_encode((f64)x / scale_of(scale), &name##_format, false, KEEP); \
    } \
    static inline u8 name##_scaled_clamped(f32 x, f32 scale) { \
        return small_encode((f64)x / scale_of(scale), &name##_format, false, LIMIT_ALL); \
    } \
    static inline u8 name##_scaled_random(f32 x, u32 random, f32 scale) { \
        return small_random((f32)((f64)x / scale_of(scale)), random, &name##_format, KEEP); \
    } \
    static inline u8 name##_scaled_random_clamped(f32 x, u32 random, f32 scale) { \
        return small_random((f32)((f64)x / scale_of(scale)), random, &name##_format, LIMIT_ALL); \
    }
SMALL(fp8_fnuz, 3, 8, 0x80, 0x7F, 0x80, 0x80, false)
SMALL(bf8_fnuz, 2, 16, 0x80, 0x7F, 0x80, 0x80, false)
SMALL(fp8_ocp, 3, 7, 0x80, 0x7E, 0x7F, 0x7F, true)
SMALL(bf8_ocp, 2, 15, 0x80, 0x7B, 0x7C, 0x7E, true)
/* Without infinities and NaN: both become the largest number, which is an assumption for NaN. */
SMALL(fp6_ocp, 3, 1, 0x20, 0x1F, 0x1F, 0x1F, true)
SMALL(bf6_ocp, 2, 3, 0x20, 0x1F, 0x1F, 0x1F, true)
SMALL(fp4_ocp, 1, 1, 0x08, 0x07, 0x07, 0x07, true)
#undef SMALL
