/* What is counted besides instructions: bytes, and on demand cache lines and bank conflicts.
 * The model of both is described in emulator/access/traffic.py; these are the same numbers. */
#pragma once
#include "wave.h"

/* What bytes are counted as: Launch.bytes has this order. */
enum { READ, WRITTEN, LDS_READ, LDS_WRITTEN };

enum { MOST_LINES = 256 }; /* a power of two, at least twice what a wave can touch: both ends of 64 accesses */

/* Sizes of lines and numbers of banks are powers of two on all GPUs, where no division is needed. */
HOT bool is_power(uint32_t n) { return !(n & (n - 1)); }

static uint32_t distinct_lines(const Launch *g, const uint64_t *address, uint32_t size, uint64_t mask) {
    uint64_t seen[MOST_LINES];
    bool taken[MOST_LINES] = {false};
    uint32_t count = 0;
    bool power = is_power(g->line_bytes);
    int shift = __builtin_ctz(g->line_bytes);
    uint64_t last = ~0ull; /* neighbours are mostly in the same line */
    for (uint64_t left = mask; left; left &= left - 1) {
        uint64_t at = address[__builtin_ctzll(left)];
        for (int end = 0; end < 2; end++) {
            uint64_t byte = at + (end ? size - 1 : 0), line = power ? byte >> shift : byte / g->line_bytes;
            if (line == last)
                continue;
            last = line;
            uint32_t slot = (uint32_t)line % MOST_LINES;
            while (taken[slot] && seen[slot] != line)
                slot = (slot + 1) % MOST_LINES;
            count += !taken[slot];
            taken[slot] = true;
            seen[slot] = line;
        }
    }
    return count;
}

/* An access to memory of `size` bytes by each lane of `mask`. */
static inline void count_memory(Wave *w, int kind, const uint64_t *address, uint32_t size, uint64_t mask) {
    Worker *worker = w->worker;
    worker->bytes[kind] += (uint64_t)size * (uint64_t)__builtin_popcountll(mask);
    if (worker->launch->detailed)
        worker->cache_lines += distinct_lines(worker->launch, address, size, mask);
}

enum { MOST_BANKS = 64, MOST_DWORDS = 64 };

/* The most dwords in one bank; those that occur several times count once. */
static uint32_t pass_cycles(uint64_t *touched, const uint32_t *dwords, int count, uint32_t banks) {
    uint8_t cycles[MOST_BANKS] = {0}, busiest = 0;
    bool power = is_power(banks);
    for (int k = 0; k < count; k++) {
        uint32_t bank = power ? dwords[k] & (banks - 1) : dwords[k] % banks, at = dwords[k] % MOST_LDS_DWORDS;
        uint64_t bit = 1ull << at % 64;
        cycles[bank] += !(touched[at / 64] & bit);
        touched[at / 64] |= bit;
        busiest = cycles[bank] > busiest ? cycles[bank] : busiest;
    }
    for (int k = 0; k < count; k++)
        touched[dwords[k] % MOST_LDS_DWORDS / 64] = 0;
    return busiest;
}

/* Whether all places of `mask` are multiples of the size. */
static bool all_aligned(const uint32_t place[][LANES], int places, uint32_t size, uint64_t mask) {
    uint32_t off = 0;
    for (int p = 0; p < places; p++)
        for (int l = 0; l < LANES; l++)
            off |= mask >> l & 1 ? place[p][l] : 0;
    return !(off & (size - 1));
}

/* Aligned elements of several dwords share all or none of them: each counts as one, in a bank as wide. */
static void count_conflicts(Wave *w, const uint32_t place[][LANES], int places, uint32_t size, uint64_t mask) {
    uint32_t whole = size * (uint32_t)places, per_pass = whole <= 4 ? 32 : whole <= 8 ? 16 : 8;
    uint32_t words = size >= 4 ? size / 4 : 1, banks = w->worker->launch->banks, dwords[MOST_DWORDS];
    int shift = 2;
    if (words > 1 && is_power(words) && is_power(banks) && all_aligned(place, places, size, mask)) {
        shift = __builtin_ctz(size);
        banks /= words;
        words = 1;
    }
    for (uint32_t first = 0; first < LANES; first += per_pass) {
        if (!(mask >> first))
            break;
        int count = 0;
        for (uint32_t l = first; l < first + per_pass; l++)
            for (int p = 0; p < places && mask >> l & 1; p++)
                for (uint32_t k = 0; k < words; k++)
                    dwords[count++] = (place[p][l] >> shift) + k;
        uint32_t cycles = pass_cycles(w->worker->touched, dwords, count, banks);
        w->worker->conflict_cycles += cycles ? cycles - 1 : 0;
    }
}

/* An access to the LDS at one or two places by each lane of `mask`. */
static inline void count_lds(Wave *w, int kind, const uint32_t place[][LANES], int places, uint32_t size, uint64_t mask) {
    w->worker->bytes[kind] += (uint64_t)size * (uint64_t)places * (uint64_t)__builtin_popcountll(mask);
    if (w->worker->launch->detailed)
        count_conflicts(w, place, places, size, mask);
}
