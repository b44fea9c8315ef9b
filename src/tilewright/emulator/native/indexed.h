/* Instructions whose registers M0 selects. They stand behind the code, with the registers that they name; `value` of an
 * operand is 1 for a pair of registers. */
#pragma once
#include "cross_lane.h"
#include "waits.h"

/* Run an instruction with other registers than it has in the code, and tell strict mode what it wrote: first `out`, then
 * a carry, which has no index, or the source that is exchanged with it. */
static int run_shifted(Wave *w, const Instruction *code, Instruction *moved) {
    int status = run_handler(w, moved);
    if (!w->worker->launch->strict || !w->busy || status != NEXT)
        return status;
    moved->written[0].first = (int16_t)moved->out.index;
    if (code->written[1].kind == VECTOR && code->written[1].count)
        moved->written[1].first = (int16_t)moved->in[0].index;
    overwrite(w, moved);
    return status;
}

/* Vector instructions of gfx9: `offset` is the end of the kernel's registers. */
static int run_indexed(Wave *w, const Instruction *i) {
    const Instruction *code = &w->worker->launch->code[i->target];
    Instruction moved = *code;
    uint32_t m0 = w->s[M0];
    for (int k = 0; k < 4; k++) {
        Operand *o = k < 3 ? &moved.in[k] : &moved.out;
        if (!(m0 >> (12 + k) & 1) || o->kind != VECTOR)
            continue;
        o->index += (int32_t)(m0 & 0xff);
        if (o->index + (o->value ? 2 : 1) > i->offset)
            return fail(w, INDEX_FAULT, -1, 0, 0);
    }
    return run_shifted(w, code, &moved);
}

/* Add the bits of M0 that `by` names to the number of a register; `value` of `by` is the end of the registers.
 * `size` of a fault: whether the index of a pair is odd. */
static int shift_register(Wave *w, Operand *o, const Operand *by) {
    uint64_t index = (uint64_t)w->s[M0] >> by->shift & ((1ull << by->width) - 1);
    if (o->value && index & 1)
        return fail(w, INDEX_FAULT, -1, 0, 1);
    if ((uint64_t)o->index + index + (o->value ? 2 : 1) > by->value)
        return fail(w, INDEX_FAULT, -1, 0, 0);
    o->index += (int32_t)index;
    return NEXT;
}

/* Moves between registers by number: `out` and the first source say which bits of M0 are their indices. A vector move
 * without active lanes does nothing, whatever the index. */
static int run_relative_move(Wave *w, const Instruction *i) {
    const Instruction *code = &w->worker->launch->code[i->target];
    Instruction moved = *code;
    if (moved.out.kind == VECTOR && !exec_of(w))
        return NEXT;
    if ((i->out.width && shift_register(w, &moved.out, &i->out) != NEXT)
        || (i->in[0].width && shift_register(w, &moved.in[0], &i->in[0]) != NEXT))
        return STOPPED;
    return run_shifted(w, code, &moved);
}
