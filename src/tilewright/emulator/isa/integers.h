/* Functions of whole numbers: bits, sums of bytes, dot products. */
#pragma once

static inline u32 popcount32(u32 x) { return (u32)__builtin_popcount(x); }
static inline u32 popcount64(u64 x) { return (u32)__builtin_popcountll(x); }
static inline u32 first_one32(u32 x) { return x ? (u32)__builtin_ctz(x) : 0xFFFFFFFF; }
static inline u32 first_one64(u64 x) { return x ? (u32)__builtin_ctzll(x) : 0xFFFFFFFF; }
static inline u32 leading32(u32 x) { return x ? (u32)__builtin_clz(x) : 0xFFFFFFFF; }
static inline u32 leading64(u64 x) { return x ? (u32)__builtin_clzll(x) : 0xFFFFFFFF; }
static inline u32 leading_sign32(u32 x) { return leading32(x ^ (0 - (x >> 31))); }
static inline u32 leading_sign64(u64 x) { return leading64(x ^ (0 - (x >> 63))); }

static inline u32 reverse32(u32 x) {
    x = ((x >> 1) & 0x55555555) | ((x & 0x55555555) << 1);
    x = ((x >> 2) & 0x33333333) | ((x & 0x33333333) << 2);
    x = ((x >> 4) & 0x0F0F0F0F) | ((x & 0x0F0F0F0F) << 4);
    return __builtin_bswap32(x);
}
static inline u64 reverse64(u64 x) { return ((u64)reverse32((u32)x) << 32) | reverse32((u32)(x >> 32)); }

/* `width` bits from bit `offset` on. */
static inline u32 bfe_u32(u32 x, u32 offset, u32 width) {
    return width >= 32 ? x >> offset : (x >> offset) & ((1u << width) - 1);
}
static inline u64 bfe_u64(u64 x, u32 offset, u32 width) {
    return width >= 64 ? x >> offset : (x >> offset) & ((1ull << width) - 1);
}
static inline i64 bfe_i64(i64 x, u32 offset, u32 width) {
    u32 unused = 64 - (width > 64 ? 64 : width);
    return width ? (i64)((u64)(x >> offset) << unused) >> unused : 0;
}
static inline i32 bfe_i32(i32 x, u32 offset, u32 width) { return (i32)bfe_i64(x, offset, width); }
static inline i32 signed24(u32 x) { return (i32)(x << 8) >> 8; }

/* A bit for each group of four bits that is not 0; and that bit four times, at the places of its group. */
static inline u64 any_of_four(u64 x) { return (x | x >> 1 | x >> 2 | x >> 3) & 0x1111111111111111ull; }
static inline u64 quadmask64(u64 x) {
    u64 result = 0;
    for (int k = 0; k < 16; k++)
        result |= (any_of_four(x) >> 4 * k & 1) << k;
    return result;
}
static inline u32 quadmask32(u32 x) { return (u32)quadmask64(x); }
static inline u64 wqm64(u64 x) { return any_of_four(x) * 15; }
static inline u32 wqm32(u32 x) { return (u32)wqm64(x); }

/* Every bit twice. */
static inline u64 replicate_bits(u32 x) {
    u64 wide = x;
    wide = (wide | wide << 16) & 0x0000FFFF0000FFFFull;
    wide = (wide | wide << 8) & 0x00FF00FF00FF00FFull;
    wide = (wide | wide << 4) & 0x0F0F0F0F0F0F0F0Full;
    wide = (wide | wide << 2) & 0x3333333333333333ull;
    wide = (wide | wide << 1) & 0x5555555555555555ull;
    return wide | wide << 1;
}

/* Each byte of the selector picks a byte of a:b (b is the lower), a sign (8 to 11), zero (12) or all ones. */
static inline u32 byte_permute(u32 a, u32 b, u32 selector) {
    u64 both = (u64)a << 32 | b;
    u32 result = 0;
    for (int place = 0; place < 32; place += 8) {
        u32 pick = selector >> place & 255, byte;
        if (pick < 8)
            byte = (u32)(both >> 8 * pick) & 255;
        else if (pick < 12)
            byte = (both >> (16 * pick - 113) & 1) ? 255 : 0;
        else
            byte = pick > 12 ? 255 : 0;
        result |= byte << place;
    }
    return result;
}

static inline u32 pack16(u16 low, u16 high) { return (u32)low | (u32)high << 16; }
static inline u16 pack8(u8 low, u8 high) { return (u16)(low | high << 8); }
static inline u32 saturate_u32(i64 x) { return x < 0 ? 0 : x > 0xFFFFFFFFll ? 0xFFFFFFFF : (u32)x; }
static inline i32 saturate_i32(i64 x) { return x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : (i32)x; }
static inline u16 saturate_u16(i64 x) { return x < 0 ? 0 : x > 0xFFFF ? 0xFFFF : (u16)x; }
static inline i16 saturate_i16(i64 x) { return x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : (i16)x; }
static inline u8 saturate_u8(f32 x) { return x != x || x < 0 ? 0 : x > 255 ? 255 : (u8)x; }
static inline bool overflow_i64(i64 a, i64 b, i64 total) { return (~(a ^ b) & (a ^ total)) < 0; }

static inline u32 sad_of(u32 a, u32 b, u32 c, int size) {
    u32 mask = (1u << size) - 1;
    for (int place = 0; place < 32; place += size) {
        u32 x = a >> place & mask, y = b >> place & mask;
        c += x > y ? x - y : y - x;
    }
    return c;
}
/* Differences count only where the byte of b is not 0. */
static inline u32 msad_u8(u32 a, u32 b, u32 c) {
    for (int place = 0; place < 32; place += 8) {
        u32 x = a >> place & 255, y = b >> place & 255;
        c += !y ? 0 : x > y ? x - y : y - x;
    }
    return c;
}
static inline u32 sad_u16(u32 a, u32 b, u32 c) { return sad_of(a, b, c, 16); }
static inline u32 sad_u8(u32 a, u32 b, u32 c) { return sad_of(a, b, c, 8); }
/* Four sums of 16 bits, each for four bytes of a, one byte further on. */
#define QUAD_SAD(name, of_four) \
    static inline u64 name(u64 a, u32 b, u64 c) { \
        u64 result = 0; \
        for (int k = 0; k < 4; k++) \
            result |= (u64)(u16)of_four((u32)(a >> 8 * k), b, (u32)(c >> 16 * k & 0xFFFF)) << 16 * k; \
        return result; \
    }
QUAD_SAD(qsad_u8, sad_u8)
QUAD_SAD(mqsad_u8, msad_u8)
#undef QUAD_SAD
/* The mean of each pair of bytes, rounded up where the byte of c is odd. */
static inline u32 lerp_u8(u32 a, u32 b, u32 c) {
    u32 total = 0;
    for (int place = 0; place < 32; place += 8)
        total |= (((a >> place & 255) + (b >> place & 255) + (c >> place & 1)) >> 1) << place;
    return total;
}

/* Sums of products of the elements of two registers. */
static inline i64 dot_of(u32 a, u32 b, int size, bool a_signed, bool b_signed) {
    i64 total = 0, mask = (1ll << size) - 1, half = 1ll << (size - 1);
    for (int place = 0; place < 32; place += size) {
        i64 x = a >> place & mask, y = b >> place & mask;
        total += (a_signed ? (x ^ half) - half : x) * (b_signed ? (y ^ half) - half : y);
    }
    return total;
}
#define DOT(name, kind, size, a_signed, b_signed) \
    static inline kind name(u32 a, u32 b, kind c) { return (kind)(dot_of(a, b, size, a_signed, b_signed) + c); }
DOT(dot_i8, i32, 8, true, true)
DOT(dot_u8, u32, 8, false, false)
DOT(dot_i4, i32, 4, true, true)
DOT(dot_u4, u32, 4, false, false)
DOT(dot_ii8, i32, 8, true, true)
DOT(dot_iu8, i32, 8, true, false)
DOT(dot_ui8, i32, 8, false, true)
DOT(dot_uu8, i32, 8, false, false)
DOT(dot_ii4, i32, 4, true, true)
DOT(dot_iu4, i32, 4, true, false)
DOT(dot_ui4, i32, 4, false, true)
DOT(dot_uu4, i32, 4, false, false)
DOT(dot2_i32_i16, i32, 16, true, true)
DOT(dot2_u32_u16, u32, 16, false, false)
#undef DOT
