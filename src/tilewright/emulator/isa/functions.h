/* The functions that expressions of the instruction table may call, for one lane. numpy_form.py has the same ones over
 * NumPy arrays. Plain C11 with _Float16; compile with -fwrapv -ffp-contract=off. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;

/* Conversions are written as calls. */
#define u8(x) ((u8)(x))
#define u16(x) ((u16)(x))
#define u32(x) ((u32)(x))
#define u64(x) ((u64)(x))
#define i8(x) ((i8)(x))
#define i16(x) ((i16)(x))
#define i32(x) ((i32)(x))
#define i64(x) ((i64)(x))
#define f16(x) ((f16)(x))
#define f32(x) ((f32)(x))
#define f64(x) ((f64)(x))

#define select(condition, yes, no) ((condition) ? (yes) : (no))
#define minimum(a, b) ((a) < (b) ? (a) : (b))
#define maximum(a, b) ((a) > (b) ? (a) : (b))
#define negation(condition) (!(condition))

static inline u16 bits16(f16 x) { u16 y; memcpy(&y, &x, 2); return y; }
static inline u32 bits32(f32 x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline u64 bits64(f64 x) { u64 y; memcpy(&y, &x, 8); return y; }
static inline f16 float16(u16 x) { f16 y; memcpy(&y, &x, 2); return y; }
static inline f32 float32(u32 x) { f32 y; memcpy(&y, &x, 4); return y; }
static inline f64 float64(u64 x) { f64 y; memcpy(&y, &x, 8); return y; }

#include "integers.h"

/* Floating point: order. In IEEE mode, which the runtime sets, v_min and v_max make a signalling NaN quiet and give
 * it; the …_num instructions of gfx12 prefer the number. v_minimum and v_maximum give NaN if an operand is one. */
#define ORDER(kind, size, quiet_bit) \
    static inline bool signalling_##kind(kind x) { return x != x && !(bits##size(x) & quiet_bit); } \
    static inline kind quiet_##kind(kind x) { return float##size((u##size)(bits##size(x) | quiet_bit)); } \
    static inline kind min_num_##kind(kind a, kind b) { \
        if (a != a) return b != b ? quiet_##kind(a) : b; \
        if (b != b) return a; \
        return a == b ? float##size((u##size)(bits##size(a) | bits##size(b))) : a < b ? a : b; \
    } \
    static inline kind max_num_##kind(kind a, kind b) { \
        if (a != a) return b != b ? quiet_##kind(a) : b; \
        if (b != b) return a; \
        return a == b ? float##size((u##size)(bits##size(a) & bits##size(b))) : a > b ? a : b; \
    } \
    static inline kind min_##kind(kind a, kind b) { \
        if (signalling_##kind(a)) return quiet_##kind(a); \
        return signalling_##kind(b) ? quiet_##kind(b) : min_num_##kind(a, b); \
    } \
    static inline kind max_##kind(kind a, kind b) { \
        if (signalling_##kind(a)) return quiet_##kind(a); \
        return signalling_##kind(b) ? quiet_##kind(b) : max_num_##kind(a, b); \
    } \
    static inline kind minimum_##kind(kind a, kind b) { return a != a ? a : b != b ? b : min_num_##kind(a, b); } \
    static inline kind maximum_##kind(kind a, kind b) { return a != a ? a : b != b ? b : max_num_##kind(a, b); } \
    static inline kind med3_##kind(kind a, kind b, kind c) { \
        if (a != a || b != b || c != c) return min_##kind(min_##kind(a, b), c); \
        return max_##kind(min_##kind(a, b), min_##kind(max_##kind(a, b), c)); \
    } \
    static inline kind med3_num_##kind(kind a, kind b, kind c) { \
        if (a != a || b != b || c != c) return min_num_##kind(min_num_##kind(a, b), c); \
        return max_num_##kind(min_num_##kind(a, b), min_num_##kind(max_num_##kind(a, b), c)); \
    }
ORDER(f16, 16, 0x0200)
ORDER(f32, 32, 0x00400000)
ORDER(f64, 64, 0x0008000000000000ull)
#undef ORDER

/* Whether the class of a number is among those that the bits 0 to 9 of the mask name. */
static inline bool class_of(u64 bits, int exponent_bits, int fraction_bits, u32 mask) {
    u64 top = (1ull << exponent_bits) - 1, exponent = bits >> fraction_bits & top;
    u64 fraction = bits & ((1ull << fraction_bits) - 1);
    bool negative = bits >> (exponent_bits + fraction_bits);
    u32 size = exponent == 0 ? fraction != 0 : exponent == top ? 3 : 2;
    u32 bit = negative ? 5 - size : 6 + size;
    if (exponent == top && fraction)
        bit = (u32)(fraction >> (fraction_bits - 1));
    return mask >> bit & 1;
}
static inline bool class_f16(f16 x, u32 mask) { return class_of(bits16(x), 5, 10, mask); }
static inline bool class_f32(f32 x, u32 mask) { return class_of(bits32(x), 8, 23, mask); }
static inline bool class_f64(f64 x, u32 mask) { return class_of(bits64(x), 11, 52, mask); }

/* Subnormal numbers replaced by zero of the same sign. */
static inline f16 flushed_f16(f16 x) { return bits16(x) & 0x7C00 ? x : float16(bits16(x) & 0x8000); }
static inline f32 flushed_f32(f32 x) { return bits32(x) & 0x7F800000 ? x : float32(bits32(x) & 0x80000000); }
static inline f64 flushed_f64(f64 x) {
    return bits64(x) & 0x7FF0000000000000ull ? x : float64(bits64(x) & 0x8000000000000000ull);
}

/* Rounding and taking apart. */
static inline int clipped_power(i32 power) { return power < -2200 ? -2200 : power > 2200 ? 2200 : power; }
#define PARTS(kind, exponent_kind, below_one) \
    static inline kind floor_##kind(kind x) { return (kind)floor((f64)x); } \
    static inline kind ceil_##kind(kind x) { return (kind)ceil((f64)x); } \
    static inline kind trunc_##kind(kind x) { return (kind)trunc((f64)x); } \
    static inline kind rint_##kind(kind x) { return (kind)rint((f64)x); } \
    static inline kind fract_##kind(kind x) { \
        kind part = (kind)(x - floor_##kind(x)); \
        return part > (kind)(below_one) ? (kind)(below_one) : part; \
    } \
    static inline kind ldexp_##kind(kind x, i32 power) { return (kind)ldexp((f64)x, clipped_power(power)); } \
    static inline exponent_kind frexp_exp_##kind(kind x) { \
        int power = 0; \
        if (isfinite((f64)x)) frexp((f64)x, &power); \
        return (exponent_kind)power; \
    } \
    static inline kind frexp_mant_##kind(kind x) { \
        int power; \
        return isfinite((f64)x) ? (kind)frexp((f64)x, &power) : x; \
    }
PARTS(f16, i16, 0x1.ffcp-1)
PARTS(f32, i32, 0x1.fffffep-1)
PARTS(f64, i32, 0x1.fffffffffffffp-1)
#undef PARTS

/* Elementary functions: computed in f64, rounded once. Those of f32 read and give no subnormal numbers. */
/* Within a quarter turn of 0, where multiples of a quarter turn give exact results. */
static inline f64 sin_turns(f64 x) {
    f64 part = x - rint(x);
    f64 near = fabs(part) > 0.25 ? copysign(0.5, part) - part : part;
    return sin(near * (2 * 3.14159265358979323846));
}
static inline f64 cos_turns(f64 x) { return sin((0.25 - fabs(x - rint(x))) * (2 * 3.14159265358979323846)); }
static inline f64 reciprocal(f64 x) { return 1.0 / x; }
static inline f64 reciprocal_root(f64 x) { return 1.0 / sqrt(x); }
#define ELEMENTARY(name, function) \
    static inline f16 name##_f16(f16 x) { return (f16)function((f64)x); } \
    static inline f32 name##_f32(f32 x) { return flushed_f32((f32)function((f64)flushed_f32(x))); } \
    static inline f64 name##_f64(f64 x) { return function(x); }
ELEMENTARY(rcp, reciprocal)
ELEMENTARY(rsq, reciprocal_root)
ELEMENTARY(sqrt, sqrt)
ELEMENTARY(exp, exp2)
ELEMENTARY(log, log2)
ELEMENTARY(sin, sin_turns)
ELEMENTARY(cos, cos_turns)
#undef ELEMENTARY

/* Products and sums that are rounded once. */
static inline f16 fma_f16(f16 a, f16 b, f16 c) { return (f16)((f64)a * (f64)b + (f64)c); }
static inline f32 fma_f32(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
static inline f64 fma_f64(f64 a, f64 b, f64 c) { return fma(a, b, c); }

/* A type that holds the product of two numbers exactly. */
typedef f64 wide_f32;
#ifdef __SIZEOF_FLOAT128__
typedef __float128 wide_f64;
#else
typedef long double wide_f64;
#endif
/* A sum rounded to odd: rounding it again, to less, gives what rounding once would. */
static inline wide_f32 odd_sum_f32(wide_f32 a, wide_f32 b) {
    volatile f64 total = a + b, part = total - a;
    volatile f64 lost = (a - (total - part)) + (b - part);
    u64 bits = bits64(total);
    if (lost == 0 || lost != lost || bits & 1 || isinf(total))
        return total;
    return float64((lost > 0) == (total > 0) ? bits + 1 : bits - 1);
}
static inline wide_f64 odd_sum_f64(wide_f64 a, wide_f64 b) {
    volatile wide_f64 total = a + b, part = total - a;
    volatile wide_f64 lost = (a - (total - part)) + (b - part);
    wide_f64 result = total;
    u64 words[2];
    memcpy(words, &result, sizeof words);
    if (lost == 0 || lost != lost || words[0] & 1)
        return result;
    if ((lost > 0) == (result > 0))
        words[0] |= 1; /* it was even */
    else if (words[0]-- == 0)
        words[1]--;
    memcpy(&result, words, sizeof words);
    return result;
}

/* The helpers of a correctly rounded division: see division.py. */
#define DIVISION(kind, size, fraction, top, one, far, scale, tiny, least) \
    static inline int exponent_##kind(kind x) { return (int)(bits##size(x) >> fraction & top); } \
    static inline bool subnormal_##kind(kind x) { return exponent_##kind(x) == 0 && x != 0; } \
    static inline int div_case_##kind(kind d, kind n) { \
        kind inverse = (kind)1 / d, quotient = n / d; \
        if (n == 0 || d == 0) return 0; \
        if (exponent_##kind(n) - exponent_##kind(d) >= far) return 1; \
        if (subnormal_##kind(d)) return 2; \
        if (subnormal_##kind(inverse)) return subnormal_##kind(quotient) ? 3 : 4; \
        if (subnormal_##kind(quotient) || exponent_##kind(n) - exponent_##kind(d) <= 1 - one) return 5; \
        return exponent_##kind(n) <= tiny ? 6 : 7; \
    } \
    static inline kind div_scale_##kind(kind x, kind d, kind n) { \
        kind up = x * (kind)0x1p##scale, down = x * (kind)0x1p-##scale; \
        switch (div_case_##kind(d, n)) { \
        case 0: return (kind)NAN; \
        case 1: return x == d ? up : x; \
        case 2: case 6: return up; \
        case 3: return x == d ? down : x; \
        case 4: return down; \
        case 5: return x == n ? up : x; \
        default: return x; \
        } \
    } \
    static inline bool div_scaled_##kind(kind x, kind d, kind n) { \
        (void)x; \
        int which = div_case_##kind(d, n); \
        return which == 0 || which == 1 || which == 3 || which == 5; \
    } \
    /* Sum and scaling are rounded once, also to a subnormal number. */ \
    static inline kind div_fmas_##kind(kind a, kind b, kind c, bool scaled) { \
        if (!scaled) return fma_##kind(a, b, c); \
        wide_##kind factor = exponent_##kind(c) > one ? (wide_##kind)0x1p##scale : (wide_##kind)0x1p-##scale; \
        return (kind)(odd_sum_##kind((wide_##kind)a * (wide_##kind)b, (wide_##kind)c) * factor); \
    } \
    static inline kind div_fixup_##kind(kind q, kind d, kind n) { \
        bool negative = bits##size(d) >> (size - 1) != bits##size(n) >> (size - 1); \
        kind endless = negative ? (kind)-INFINITY : (kind)INFINITY, nothing = negative ? (kind)-0.0 : (kind)0; \
        if (n != n) return n; \
        if (d != d) return d; \
        if ((d == 0 && n == 0) || (isinf(d) && isinf(n))) return (kind)NAN; \
        if (d == 0 || isinf(n)) return endless; \
        if (isinf(d) || n == 0) return nothing; \
        if (exponent_##kind(n) - exponent_##kind(d) < least) return nothing; \
        if (q != q) return endless; \
        kind size_ = q < 0 || (q == 0 && bits##size(q)) ? -q : q; \
        return negative ? -size_ : size_; \
    }
DIVISION(f32, 32, 23, 0xFF, 127, 96, 64, 23, -150)
DIVISION(f64, 64, 52, 0x7FF, 1023, 768, 128, 53, -1075)
#undef DIVISION
static inline f16 div_fixup_f16(f16 q, f16 d, f16 n) {
    u16 sign = (u16)((bits16(d) ^ bits16(n)) & 0x8000);
    bool d_endless = (bits16(d) & 0x7FFF) == 0x7C00, n_endless = (bits16(n) & 0x7FFF) == 0x7C00;
    if (n != n) return n;
    if (d != d) return d;
    if ((d == 0 && n == 0) || (d_endless && n_endless)) return float16(0x7E00);
    if (d == 0 || n_endless) return float16(sign | 0x7C00);
    if (d_endless || n == 0) return float16(sign);
    return float16((u16)(sign | (bits16(q) & 0x7FFF)));
}

/* Conversions to whole numbers: towards zero, too large becomes the nearest end, NaN becomes 0. */
#define WHOLE(kind, low, high) \
    static inline kind f64_to_##kind(f64 x) { \
        return x != x ? 0 : x <= (f64)(low) ? (kind)(low) : x >= (f64)(high) ? (kind)(high) : (kind)x; \
    }
WHOLE(u32, 0, 0xFFFFFFFF)
WHOLE(i32, INT32_MIN, INT32_MAX)
WHOLE(u16, 0, 0xFFFF)
WHOLE(i16, INT16_MIN, INT16_MAX)
#undef WHOLE
static inline f64 norm_f64(f32 x, f64 scale) {
    return x != x ? NAN : rint((x < -1 ? -1.0 : x > 1 ? 1.0 : (f64)x) * scale);
}

static inline u16 f16_toward_zero(f32 x) {
    f16 near = (f16)x;
    return (u16)(bits16(near) - (fabsf((f32)near) > fabsf(x)));
}
static inline u16 bf16_of_f32(f32 x) {
    u32 bits = bits32(x);
    return (u16)(x != x ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
/* Random bits are added below the last bit that is kept, then the rest is cut off: see float_functions.py. */
static inline f16 f16_random(f32 x, u32 random) {
    u32 bits = bits32(x);
    int exponent = (int)(bits >> 23 & 0xFF) - 127;
    if (exponent == 128)
        return (f16)x;
    int below = exponent < -14 ? -14 - exponent : 0;
    u32 kept = (((bits & 0x7FFFFF) | 0x800000) >> (below < 31 ? below : 31)) + (random >> 19);
    u32 code = ((u32)(exponent < -14 ? 0 : exponent + 14) << 10) + (kept >> 13);
    return float16((u16)((code < 0x7C00 ? code : 0x7C00) | (bits >> 16 & 0x8000)));
}
static inline u16 bf16_random(f32 x, u32 random) {
    return isfinite(x) ? (u16)((bits32(x) + (random >> 16)) >> 16) : bf16_of_f32(x);
}
static inline f32 f32_of_bf16(u16 bits) { return float32((u32)bits << 16); }
static inline f32 dot2_f32_f16(u32 a, u32 b, f32 c) {
    f64 first = (f64)float16((u16)a) * (f64)float16((u16)b);
    return (f32)(first + (f64)float16((u16)(a >> 16)) * (f64)float16((u16)(b >> 16)) + (f64)c);
}
static inline f32 dot2_f32_bf16(u32 a, u32 b, f32 c) {
    f64 first = (f64)f32_of_bf16((u16)a) * (f64)f32_of_bf16((u16)b);
    return (f32)(first + (f64)f32_of_bf16((u16)(a >> 16)) * (f64)f32_of_bf16((u16)(b >> 16)) + (f64)c);
}

/* One product after the other, each with a fused multiply-add. */
static inline f16 dot2_f16_f16(u32 a, u32 b, f16 c) {
    f16 first = fma_f16(float16((u16)a), float16((u16)b), c);
    return fma_f16(float16((u16)(a >> 16)), float16((u16)(b >> 16)), first);
}
static inline u16 dot2_bf16_bf16(u32 a, u32 b, u16 c) {
    u16 first = bf16_of_f32(fmaf(f32_of_bf16((u16)a), f32_of_bf16((u16)b), f32_of_bf16(c)));
    return bf16_of_f32(fmaf(f32_of_bf16((u16)(a >> 16)), f32_of_bf16((u16)(b >> 16)), f32_of_bf16(first)));
}

/* MODE.FP16_OVFL: what is too large for f16 becomes the largest number; true infinities stay. */
static inline bool finite_f16(f16 x) { return (bits16(x) & 0x7C00) != 0x7C00; }
static inline bool finite_f32(f32 x) { return (bits32(x) & 0x7F800000) != 0x7F800000; }
static inline f16 limit_f16(f16 x, bool finite) {
    return finite && (bits16(x) & 0x7FFF) == 0x7C00 ? float16((bits16(x) & 0x8000) | 0x7BFF) : x;
}

#include "small_floats.h"
#include "tables.h"
