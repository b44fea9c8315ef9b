/* Matrix instructions. Operands are decoded to one number per lane and element, multiplied, and added to C.
 *
 * Order of the sum: products of ascending k are added to each other, beginning with 0, and C is added last. Each
 * addition rounds once to f32; the GPU's own order is not documented. Exec is ignored, as by the GPU.
 *
 * Every layout of A, B and C keeps neighbouring rows (A) or columns (B, C) in neighbouring lanes of one element. So a
 * layout is a list of runs: which element, and the first lane.
 *
 * A sparse A has two of each four neighbours along k, and a fourth operand says which: see sparse.py. */
#pragma once
#include "wave.h"
#include "functions.h"

/* Kinds of elements. BITS_OF has the same order. */
enum { AS_F32, AS_F16, AS_BF16, AS_FP8, AS_BF8, AS_I8, AS_U8, AS_I4, AS_U4, AS_I32, AS_F64, AS_F16_HALF, AS_BF16_HALF,
       AS_FP6, AS_BF6, AS_FP4, AS_XF32 };
static const uint8_t BITS_OF[] = {32, 16, 16, 8, 8, 8, 8, 4, 4, 32, 64, 32, 32, 6, 6, 4, 32};

enum { MOST_RUNS = 256, MOST_ELEMENTS = 64, MOST_ROWS = 32, MOST_PLACES = 64 };

typedef struct { uint8_t element, lane; } Run;

typedef struct {
    uint32_t m, n, k, blocks;           /* k: elements of a row of A; B has twice as many if A is sparse */
    uint32_t a_kind, b_kind, c_kind;
    uint32_t a_count, b_count, c_count; /* elements per lane */
    uint32_t high;                      /* elements of half a register are in the upper halves */
    uint32_t clamp;                     /* sums of integers stop at their limits */
    uint32_t a_sign, b_sign, c_sign;    /* see CHANGE_SIGNS */
    uint32_t b_moved;                   /* lanes take their elements of B from b_lanes */
    uint8_t b_lanes[LANES];
    Run a[MOST_RUNS];                   /* [block][k] */
    Run b[MOST_RUNS];                   /* [block][k] */
    Run c[MOST_RUNS];                   /* [block][row] */
    float a_values[256], b_values[256]; /* the numbers of all codes, if elements have at most 8 bits */
} Matrix;

typedef float Lanes32[LANES];
typedef int32_t LanesInt[LANES];
typedef double Lanes64[LANES];
typedef uint8_t Places[MOST_PLACES]; /* of a row of a sparse A: k of each element */

HOT uint32_t without_subnormal(uint32_t bits, uint32_t exponent, uint32_t sign) {
    return bits & exponent ? bits : bits & sign;
}

static void decode_half(const uint32_t *words, int shift, bool brain, bool flush, float *to) {
    for (int l = 0; l < LANES; l++) {
        uint32_t bits = words[l] >> shift & 0xffff;
        if (flush)
            bits = without_subnormal(bits, brain ? 0x7f80 : 0x7c00, 0x8000);
        union { uint32_t u; float f; } wide = {bits << 16};
        union { uint16_t u; _Float16 f; } narrow = {(uint16_t)bits};
        to[l] = brain ? wide.f : (float)narrow.f;
    }
}

/* Elements of at most 8 bits by a table; those of 6 bits cross registers. */
static void decode_small(Wave *w, const Operand *o, uint32_t bits, uint32_t e, const float *table, float *to) {
    uint32_t at = e * bits, shift = at % 32;
    const uint32_t *low = w->v[o->index + (int)(at / 32)];
    const uint32_t *high = shift + bits > 32 ? w->v[o->index + (int)(at / 32) + 1] : low;
    for (int l = 0; l < LANES; l++)
        to[l] = table[(((uint64_t)high[l] << 32 | low[l]) >> shift) & ((1u << bits) - 1)];
}

/* f32 with 10 bits of fraction, rounded to nearest even; AMD does not document the rounding. */
static void decode_xf32(const uint32_t *words, float *to) {
    for (int l = 0; l < LANES; l++) {
        union { uint32_t u; float f; } word = {words[l]};
        if ((word.u & 0x7f800000) != 0x7f800000)
            word.u = (word.u + 0x0fff + (word.u >> 13 & 1)) & 0xffffe000;
        to[l] = word.f;
    }
}

/* Decode `count` elements per lane of an operand into f32. */
static void decode(Wave *w, const Instruction *i, const Operand *o, const Matrix *x, uint32_t kind, uint32_t count,
                   const float *table, bool flush, Lanes32 *to) {
    uint32_t per = 32 / BITS_OF[kind], room[LANES];
    for (uint32_t e = 0; e < count; e++) {
        if (BITS_OF[kind] <= 8) {
            decode_small(w, o, BITS_OF[kind], e, table, to[e]);
            continue;
        }
        const uint32_t *words = lanes_of(w, i, o, o->kind == VECTOR ? (int)(e / per) : 0, 0, room);
        int shift = (int)(e % per * BITS_OF[kind]);
        switch (kind) {
        case AS_F32: memcpy(to[e], words, sizeof *to); break;
        case AS_XF32: decode_xf32(words, to[e]); break;
        case AS_F16: case AS_BF16: decode_half(words, shift, kind == AS_BF16, flush, to[e]); break;
        default: decode_half(words, x->high ? 16 : 0, kind == AS_BF16_HALF, flush, to[e]);
        }
    }
}

static void decode_int(Wave *w, const Instruction *i, const Operand *o, uint32_t kind, uint32_t count, LanesInt *to) {
    uint32_t bits = BITS_OF[kind], per = 32 / bits, room[LANES];
    bool is_signed = kind == AS_I8 || kind == AS_I4 || kind == AS_I32;
    for (uint32_t e = 0; e < count; e++) {
        const uint32_t *words = lanes_of(w, i, o, o->kind == VECTOR ? (int)(e / per) : 0, 0, room);
        uint32_t left = 32 - bits - e % per * bits, right = 32 - bits;
        for (int l = 0; l < LANES; l++) {
            uint32_t top = words[l] << left;
            to[e][l] = is_signed ? (int32_t)top >> right : (int32_t)(top >> right);
        }
    }
}

/* Bits 0 and 1 of `change` negate elements with even and with odd index; bit 2 takes the absolute value first. */
#define CHANGE_SIGNS(name, type) \
    static void name(type (*values)[LANES], uint32_t count, uint32_t change) { \
        for (uint32_t e = 0; change && e < count; e++) \
            for (int l = 0; l < LANES; l++) { \
                type value = values[e][l]; \
                value = change & 4 ? __builtin_elementwise_abs(value) : value; \
                values[e][l] = change >> e % 2 & 1 ? -value : value; \
            } \
    }
CHANGE_SIGNS(change_signs, float)
CHANGE_SIGNS(change_signs_f64, double)

/* Move the decoded elements of B between lanes. */
static void move_lanes(const Matrix *x, uint32_t (*values)[LANES]) {
    for (uint32_t e = 0; x->b_moved && e < x->b_count; e++) {
        uint32_t moved[LANES];
        for (int l = 0; l < LANES; l++)
            moved[l] = values[e][x->b_lanes[l]];
        memcpy(values[e], moved, sizeof moved);
    }
}

static void flush_f32(Lanes32 *values, uint32_t count) {
    for (uint32_t e = 0; e < count; e++)
        for (int l = 0; l < LANES; l++) {
            union { float f; uint32_t u; } word = {values[e][l]};
            word.u = without_subnormal(word.u, 0x7f800000, 0x80000000);
            values[e][l] = word.f;
        }
}

static void encode(Wave *w, const Instruction *i, const Matrix *x, const Lanes32 *from, bool flush) {
    uint32_t bits = BITS_OF[x->c_kind], per = 32 / bits;
    bool half = x->c_kind == AS_F16_HALF || x->c_kind == AS_BF16_HALF;
    for (uint32_t e = 0; e < x->c_count; e++) {
        uint32_t *to = w->v[i->out.index + (int)(e / per)];
        int shift = half ? (x->high ? 16 : 0) : (int)(e % per * bits);
        for (int l = 0; l < LANES; l++) {
            union { uint32_t u; float f; } wide = {.f = from[e][l]};
            union { uint16_t u; _Float16 f; } narrow = {.f = (_Float16)wide.f};
            uint32_t word = x->c_kind == AS_BF16 || x->c_kind == AS_BF16_HALF ? bf16_of_f32(wide.f) : narrow.u;
            if (flush)
                word = without_subnormal(word, x->c_kind == AS_F16 || x->c_kind == AS_F16_HALF ? 0x7c00 : 0x7f80, 0x8000);
            to[l] = (to[l] & ~(0xffffu << shift)) | word << shift;
        }
    }
}

/* The places of a sparse A: two bits for each element, in its lane of a register, from bit `shift` on. NULL: A is dense. */
static const Places *find_places(const Wave *w, const Instruction *i, const Matrix *x, Places *room) {
    const Operand *o = &i->in[3];
    if (o->kind != VECTOR)
        return NULL;
    for (uint32_t row = 0; row < x->m; row++)
        for (uint32_t k = 0; k < x->k; k++) {
            Run run = x->a[k];
            room[row][k] = (uint8_t)(k / 2 * 4 + (w->v[o->index][run.lane + row] >> (o->shift + 2 * run.element) & 3));
        }
    return (const Places *)room;
}

/* D = A · B + C for one block, row by row: rows of C and D are `width` numbers in neighbouring lanes. `at` is where B's
 * row is for element k of row + j of A. */
#define MULTIPLY(name, type, width, mul_add, total, at) \
    static void name(const Matrix *x, uint32_t block, const type (*a)[LANES], const type (*b)[LANES], \
                     const type (*c)[LANES], type (*d)[LANES], const Places *places) { \
        (void)places; \
        typedef type Row __attribute__((vector_size(width * sizeof(type)), aligned(sizeof(type)))); \
        const Run *ra = &x->a[block * x->k], *rb = &x->b[block * x->k], *rc = &x->c[block * x->m]; \
        for (uint32_t row = 0; row < x->m; row += 4) { \
            Row sum[4] = {{0}, {0}, {0}, {0}}; \
            for (uint32_t k = 0; k < x->k; k++) { \
                const type *left = &a[ra[k].element][ra[k].lane + row]; \
                for (int j = 0; j < 4; j++) { \
                    Row right = *(const Row *)&b[rb[at].element][rb[at].lane]; \
                    Row factor = left[j] - (Row){0}; \
                    sum[j] = mul_add; \
                } \
            } \
            for (int j = 0; j < 4; j++) { \
                Run run = rc[row + j]; \
                Row addend = *(const Row *)&c[run.element][run.lane]; \
                *(Row *)&d[run.element][run.lane] = total; \
            } \
        } \
    }

#define FUSED __builtin_elementwise_fma(factor, right, sum[j])
#define WRAPPING sum[j] + factor * right
#define ADDED addend + sum[j]
#define LIMITED (x->clamp ? __builtin_elementwise_add_sat(addend, sum[j]) : ADDED)
#define PLACE places[row + j][k]
MULTIPLY(multiply_32, float, 32, FUSED, ADDED, k)
MULTIPLY(multiply_16, float, 16, FUSED, ADDED, k)
MULTIPLY(multiply_4, float, 4, FUSED, ADDED, k)
MULTIPLY(multiply_sparse_32, float, 32, FUSED, ADDED, PLACE)
MULTIPLY(multiply_sparse_16, float, 16, FUSED, ADDED, PLACE)
MULTIPLY(multiply_int_32, int32_t, 32, WRAPPING, LIMITED, k)
MULTIPLY(multiply_int_16, int32_t, 16, WRAPPING, LIMITED, k)
MULTIPLY(multiply_int_4, int32_t, 4, WRAPPING, LIMITED, k)
MULTIPLY(multiply_sparse_int_32, int32_t, 32, WRAPPING, LIMITED, PLACE)
MULTIPLY(multiply_sparse_int_16, int32_t, 16, WRAPPING, LIMITED, PLACE)
MULTIPLY(multiply_f64_16, double, 16, FUSED, ADDED, k)
MULTIPLY(multiply_f64_4, double, 4, FUSED, ADDED, k)

/* RDNA 3 wants A and B twice, in both halves of the wave. */
static bool halves_agree(const Wave *w, const Instruction *i, const Matrix *x) {
    for (int k = 0; k < 2; k++) {
        uint32_t kind = k ? x->b_kind : x->a_kind, count = (k ? x->b_count : x->a_count) * BITS_OF[kind] / 32;
        for (uint32_t r = 0; r < count; r++)
            if (memcmp(&w->v[i->in[k].index + (int)r][0], &w->v[i->in[k].index + (int)r][16], 64))
                return false;
    }
    return true;
}

static int run_matrix_float(Wave *w, const Instruction *i) {
    const Matrix *x = (const Matrix *)w->worker->launch->matrices + i->target;
    if (i->detail && !halves_agree(w, i, x))
        return fail(w, HALVES_FAULT, -1, 0, 0);
    _Alignas(64) Lanes32 a[MOST_ELEMENTS], b[MOST_ELEMENTS], c[MOST_ELEMENTS], d[MOST_ELEMENTS];
    Places room[MOST_ROWS];
    const Places *places = find_places(w, i, x, room);
    bool flush = w->worker->launch->matrix_flush && (x->a_kind == AS_F16 || x->a_kind == AS_BF16);
    decode(w, i, &i->in[0], x, x->a_kind, x->a_count, x->a_values, flush, a);
    decode(w, i, &i->in[1], x, x->b_kind, x->b_count, x->b_values, flush, b);
    change_signs(a, x->a_count, x->a_sign);
    change_signs(b, x->b_count, x->b_sign);
    move_lanes(x, (uint32_t(*)[LANES])b);
    const Lanes32 *from = c;
    Lanes32 *to = d;
    int apart = i->in[2].index - i->out.index, count = (int)x->c_count;
    /* C may be read in place unless D overlaps it in other lanes than its own. */
    bool direct = x->c_kind == AS_F32 && !flush && !x->c_sign && i->in[2].kind == VECTOR && (!apart || apart >= count || apart <= -count);
    if (direct)
        from = (const Lanes32 *)&w->v[i->in[2].index];
    else
        decode(w, i, &i->in[2], x, x->c_kind, x->c_count, NULL, flush, c);
    if (flush && x->c_kind == AS_F32)
        flush_f32(c, x->c_count);
    if (!direct)
        change_signs(c, x->c_count, x->c_sign);
    if (x->c_kind == AS_F32)
        to = (Lanes32 *)&w->v[i->out.index];
    for (uint32_t block = 0; block < x->blocks; block++)
        switch (x->n) {
        case 32: (places ? multiply_sparse_32 : multiply_32)(x, block, a, b, from, to, places); break;
        case 16: (places ? multiply_sparse_16 : multiply_16)(x, block, a, b, from, to, places); break;
        default: multiply_4(x, block, a, b, from, to, NULL);
        }
    if (x->c_kind != AS_F32)
        encode(w, i, x, to, flush);
    else if (flush)
        flush_f32(to, x->c_count);
    return NEXT;
}

enum { SCALE_BLOCK = 32 }; /* elements along k that share a scale */

/* The scales of all lanes: a byte of an operand, which is the exponent of a power of two. */
static void decode_scales(Wave *w, const Instruction *i, const Operand *o, uint32_t byte, double *to) {
    uint32_t room[LANES];
    const uint32_t *words = lanes_of(w, i, o, 0, 0, room);
    for (int l = 0; l < LANES; l++) {
        int exponent = (int)(words[l] >> 8 * byte & 0xff);
        to[l] = exponent == 0xff ? NAN : ldexp(1.0, exponent - 127);
    }
}

/* One block with scales of A and B, summed in f64 and rounded after C is added. A scale is in the lane of its row or
 * column, and of its group of elements along k. */
static int run_matrix_scaled(Wave *w, const Instruction *i) {
    const Matrix *x = (const Matrix *)w->worker->launch->matrices + i->target;
    _Alignas(64) Lanes32 a[MOST_ELEMENTS], b[MOST_ELEMENTS], c[MOST_ELEMENTS];
    double a_scale[LANES], b_scale[LANES];
    decode(w, i, &i->in[0], x, x->a_kind, x->a_count, x->a_values, false, a);
    decode(w, i, &i->in[1], x, x->b_kind, x->b_count, x->b_values, false, b);
    decode(w, i, &i->in[2], x, AS_F32, x->c_count, NULL, false, c);
    decode_scales(w, i, &i->in[3], i->detail & 3, a_scale);
    decode_scales(w, i, &i->second, i->detail >> 2, b_scale);
    for (uint32_t row = 0; row < x->m; row++) {
        double sum[32] = {0};
        for (uint32_t k = 0; k < x->k; k++) {
            uint32_t group = k / SCALE_BLOCK;
            double left = (double)a[x->a[k].element][x->a[k].lane + row] * a_scale[row + x->m * group];
            const float *right = &b[x->b[k].element][x->b[k].lane];
            for (uint32_t column = 0; column < x->n; column++)
                sum[column] += left * ((double)right[column] * b_scale[column + x->n * group]);
        }
        Run run = x->c[row];
        float *to = (float *)&w->v[i->out.index + run.element][run.lane];
        for (uint32_t column = 0; column < x->n; column++)
            to[column] = (float)(sum[column] + (double)c[run.element][run.lane + column]);
    }
    return NEXT;
}

static int run_matrix_int(Wave *w, const Instruction *i) {
    const Matrix *x = (const Matrix *)w->worker->launch->matrices + i->target;
    if (i->detail && !halves_agree(w, i, x))
        return fail(w, HALVES_FAULT, -1, 0, 0);
    _Alignas(64) LanesInt a[MOST_ELEMENTS], b[MOST_ELEMENTS], c[MOST_ELEMENTS];
    Places room[MOST_ROWS];
    const Places *places = find_places(w, i, x, room);
    decode_int(w, i, &i->in[0], x->a_kind, x->a_count, a);
    decode_int(w, i, &i->in[1], x->b_kind, x->b_count, b);
    move_lanes(x, (uint32_t(*)[LANES])b);
    decode_int(w, i, &i->in[2], AS_I32, x->c_count, c);
    LanesInt *to = (LanesInt *)&w->v[i->out.index];
    for (uint32_t block = 0; block < x->blocks; block++)
        switch (x->n) {
        case 32: (places ? multiply_sparse_int_32 : multiply_int_32)(x, block, a, b, c, to, places); break;
        case 16: (places ? multiply_sparse_int_16 : multiply_int_16)(x, block, a, b, c, to, places); break;
        default: multiply_int_4(x, block, a, b, c, to, NULL);
        }
    return NEXT;
}

static void decode_double(Wave *w, const Instruction *i, const Operand *o, uint32_t count, Lanes64 *to) {
    uint32_t low_room[LANES], high_room[LANES];
    for (uint32_t e = 0; e < count; e++) {
        int word = o->kind == VECTOR ? (int)(2 * e) : 0;
        const uint32_t *low = lanes_of(w, i, o, word, 0, low_room), *high = lanes_of(w, i, o, word + 1, 0, high_room);
        for (int l = 0; l < LANES; l++) {
            union { uint64_t u; double f; } whole = {(uint64_t)high[l] << 32 | low[l]};
            to[e][l] = whole.f;
        }
    }
}

static int run_matrix_double(Wave *w, const Instruction *i) {
    const Matrix *x = (const Matrix *)w->worker->launch->matrices + i->target;
    _Alignas(64) Lanes64 a[4], b[4], c[16], d[16];
    decode_double(w, i, &i->in[0], x->a_count, a);
    decode_double(w, i, &i->in[1], x->b_count, b);
    decode_double(w, i, &i->in[2], x->c_count, c);
    change_signs_f64(a, x->a_count, x->a_sign);
    change_signs_f64(b, x->b_count, x->b_sign);
    change_signs_f64(c, x->c_count, x->c_sign);
    for (uint32_t block = 0; block < x->blocks; block++)
        if (x->n == 16)
            multiply_f64_16(x, block, a, b, c, d, NULL);
        else
            multiply_f64_4(x, block, a, b, c, d, NULL);
    for (uint32_t e = 0; e < x->c_count; e++)
        for (int l = 0; l < LANES; l++) {
            union { double f; uint64_t u; } whole = {d[e][l]};
            w->v[i->out.index + 2 * (int)e][l] = (uint32_t)whole.u;
            w->v[i->out.index + 2 * (int)e + 1][l] = (uint32_t)(whole.u >> 32);
        }
    return NEXT;
}
