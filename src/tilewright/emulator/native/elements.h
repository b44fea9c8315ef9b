/* Instructions on many elements in consecutive registers. */
#pragma once
#include "functions.h"
#include "wave.h"

enum { MOST_ELEMENT_WORDS = 32 };

static int run_handler(Wave *w, const Instruction *i);

/* Copy the element `number` of a source to a spare register. `value` has the bits from one element to the next, and
 * those of an element; it is 0 for random numbers. */
static void take_element(Wave *w, const Instruction *i, const Operand *o, int number, uint32_t *to) {
    _Alignas(64) uint32_t low_room[LANES], high_room[LANES];
    if (o->kind == CONSTANT || o->value == 0) {
        const uint32_t *seed = lanes_of(w, i, o, 0, 0, low_room);
        for (int l = 0; l < LANES; l++)
            to[l] = number ? next_random(to[l]) : seed[l];
        return;
    }
    int step = (int)(o->value & 255), width = (int)(o->value >> 8 & 255), first = step * number, shift = first % 32;
    bool crosses = shift + width > 32;
    const uint32_t *low = lanes_of(w, i, o, first / 32, 0, low_room);
    const uint32_t *high = crosses ? lanes_of(w, i, o, first / 32 + 1, 0, high_room) : low;
    uint64_t mask = (1ull << width) - 1;
    for (int l = 0; l < LANES; l++)
        to[l] = (uint32_t)(((uint64_t)high[l] << 32 | low[l]) >> shift & mask);
}

/* The record of an element stands behind the code; its sources and its result are spare registers, or the same for all
 * elements. `detail` is the number of elements, `size` the bits of a result. */
static int run_elements(Wave *w, const Instruction *i) {
    const Instruction *part = &w->worker->launch->code[i->target];
    _Alignas(64) uint32_t out[MOST_ELEMENT_WORDS + 1][LANES];
    int words = (int)(i->detail * i->size / 32);
    memset(out, 0, sizeof out[0] * (size_t)(words + 1));
    for (int number = 0; number < (int)i->detail; number++) {
        for (int k = 0; k < 3; k++)
            if (i->in[k].kind != NOTHING)
                take_element(w, i, &i->in[k], number, w->v[part->in[k].index]);
        run_handler(w, part);
        const uint32_t *made = w->v[part->out.index];
        int first = (int)i->size * number / 32, shift = (int)i->size * number % 32;
        for (int l = 0; l < LANES; l++) {
            out[first][l] |= made[l] << shift;
            out[first + 1][l] |= shift ? made[l] >> (32 - shift) : 0;
        }
    }
    for (int word = 0; word < words; word++)
        write_lanes(w, i->out.index + word, out[word], exec_of(w));
    return NEXT;
}
