/* Arithmetic that the table does not describe as one expression: logic on exec, any function of three bits, mixed
 * precision. */
#pragma once
#include "alu.h"

/* The order of lower_alu.py. */
static uint64_t exec_logic(uint32_t which, uint64_t a, uint64_t exec) {
    switch (which) {
    case 0: return a & exec;
    case 1: return a | exec;
    case 2: return a ^ exec;
    case 3: return a & ~exec;
    case 4: return a | ~exec;
    case 5: return ~(a & exec);
    case 6: return ~(a | exec);
    case 7: return ~(a ^ exec);
    case 8: return ~a & exec;
    default: return ~a | exec;
    }
}

static void change_exec(Wave *w, const Instruction *i, bool save) {
    if (i->size == 8) {
        uint64_t before = scalar_pair(w, EXEC), after = exec_logic(i->detail, scalar64(w, &i->in[0]), before);
        set_scalar_pair(w, i->out.index, save ? before : after);
        set_scalar_pair(w, EXEC, after);
        w->scc = after != 0;
        return;
    }
    uint32_t before = w->s[EXEC], after = (uint32_t)exec_logic(i->detail, scalar32(w, &i->in[0]), before);
    w->s[i->out.index] = save ? before : after;
    w->s[EXEC] = after;
    w->scc = after != 0;
}

static int run_save_exec(Wave *w, const Instruction *i) {
    change_exec(w, i, true);
    return NEXT;
}

static int run_write_exec(Wave *w, const Instruction *i) {
    change_exec(w, i, false);
    return NEXT;
}

/* Bit 4·a + 2·b + c of `detail` is the result for bits a, b, c; of `size` bytes. */
static int run_bitop3(Wave *w, const Instruction *i) {
    SOURCE(a, 0, 0)
    SOURCE(b, 1, 0)
    SOURCE(c, 2, 0)
    _Alignas(64) uint32_t out[LANES] = {0};
    for (int k = 0; k < 8; k++)
        if (i->detail >> k & 1)
            for (int l = 0; l < LANES; l++)
                out[l] |= (k & 4 ? lanes_a[l] : ~lanes_a[l]) & (k & 2 ? lanes_b[l] : ~lanes_b[l])
                    & (k & 1 ? lanes_c[l] : ~lanes_c[l]);
    if (i->size == 4)
        return finish_32(w, i, out, BITS_32);
    for (int l = 0; l < LANES; l++)
        out[l] &= 0xffff;
    return finish_16(w, i, out, BITS_16);
}

/* A source of v_fma_mix: f32, or f16 as f32. */
static void mixed_source(Wave *w, const Instruction *i, int k, float *to) {
    uint32_t room[LANES];
    if (i->detail >> k & 1) {
        const uint32_t *from = lanes_of(w, i, &i->in[k], 0, 0x8000u, room);
        if (flushes_f16_f64(w)) {
            flush_lanes(from, room, 0x7c00u, 0x8000u);
            from = room;
        }
        for (int l = 0; l < LANES; l++)
            to[l] = (float)as_f16(from[l]);
        return;
    }
    const uint32_t *from = lanes_of(w, i, &i->in[k], 0, 0x80000000u, room);
    if (flushes_f32(w)) {
        flush_lanes(from, room, 0x7f800000u, 0x80000000u);
        from = room;
    }
    memcpy(to, from, sizeof room);
}

static int run_fma_mix(Wave *w, const Instruction *i) {
    float source[3][LANES];
    _Alignas(64) uint32_t out[LANES];
    for (int k = 0; k < 3; k++)
        mixed_source(w, i, k, source[k]);
    for (int l = 0; l < LANES; l++)
        out[l] = bits_f32(fma_f32(source[0][l], source[1][l], source[2][l]));
    if (!(i->flags & PLACED))
        return finish_32(w, i, out, F32);
    if (i->omod || i->flags & CLAMP)
        scaled_f32(i, omod_f32(w, i), out);
    if (flushes_result_f32(w))
        flush_lanes(out, out, 0x7f800000u, 0x80000000u);
    bool limits = limits_overflow(w);
    for (int l = 0; l < LANES; l++) {
        _Float16 narrow = (_Float16)as_f32(out[l]);
        out[l] = bits_f16(limits ? limit_f16(narrow, finite_f32(as_f32(out[l]))) : narrow);
    }
    if (flushes_result_f16_f64(w))
        flush_lanes(out, out, 0x7c00u, 0x8000u);
    placed(w, i, out);
    write_lanes(w, i->out.index, out, exec_of(w));
    return NEXT;
}
