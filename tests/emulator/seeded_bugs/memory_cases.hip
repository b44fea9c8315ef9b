#include "cases.hpp"

// case memory_reverse: race
CASE(memory_reverse) {
    out[t] = in[t]; // here
    FIX(__syncthreads();)
    flags[t % 64] = 0;
    out[256 + t] = out[255 - t]; // here
}

// case memory_reuse: race
CASE(memory_reuse) {
    int value = out[(t + 64) % 256]; // here
    FIX(__syncthreads();)
    out[t] = value + in[t] + 1; // here
}

// case memory_broadcast: race
CASE(memory_broadcast) {
    if (t == 0)
        out[0] = in[7]; // here
    FIX(__syncthreads();)
    out[256 + t] = out[0] + t; // here
}

// case sum_of_groups: race, grid 4
CASE(sum_of_groups) {
    if (t == 0)
        FIX(atomicAdd(out, in[g]);) BUG(out[0] += in[g];) // here
}

// case neighbour_group: race, grid 4
CASE(neighbour_group) {
    out[i] = in[i] + 1; // here
    FIX(return;)
    out[2048 + i] = out[(i + 256) % 1024]; // here
}

// case overlap: race, grid 4
CASE(overlap) {
    out[g * BUG(255) FIX(256) + t] = in[i] + g; // here
}

// case overlap_octets: race, grid 4
CASE(overlap_octets) {
    char* octets = reinterpret_cast<char*>(out);
    octets[g * BUG(255) FIX(256) + t] = static_cast<char>(in[i] + 3 * g + 1); // here
}

// case last_group: race, grid 4
CASE(last_group) {
    if (t == 0) {
        out[1 + g] = in[g] + 1; // here
        FIX(__threadfence();)
        if (atomicAdd(flags, 1) == 3) {
            FIX(__threadfence();)
            int sum = 0;
            for (int k = 0; k < 4; k++)
                sum += out[1 + k]; // here
            out[0] = sum;
        }
    }
}

// case last_group_block_fence: race, grid 4
CASE(last_group_block_fence) {
    if (t == 0) {
        out[1 + g] = in[g] + 1; // here
        FIX(__threadfence();)
        BUG(__threadfence_block();)
        if (atomicAdd(flags, 1) == 3) {
            __threadfence();
            int sum = 0;
            for (int k = 0; k < 4; k++)
                sum += out[1 + k]; // here
            out[0] = sum;
        }
    }
}

// case last_group_all_threads: race, grid 4
CASE(last_group_all_threads) {
    __shared__ int last;
    out[256 + i] = in[i] + 1; // here
    FIX(__threadfence();)
    __syncthreads();
    if (t == 0)
        last = atomicAdd(flags, 1) == 3;
    __syncthreads();
    if (last) {
        FIX(__threadfence();)
        out[t] = out[256 + t] + out[512 + t] + out[768 + t]; // here
    }
}

// case flag_without_release: race, grid 2
CASE(flag_without_release) {
    if (t != 0)
        return;
    if (g == 0) {
        out[0] = in[5] + 1; // here
        __hip_atomic_store(flags, 1, BUG(__ATOMIC_RELAXED) FIX(__ATOMIC_RELEASE), AGENT);
    } else {
        while (__hip_atomic_load(flags, __ATOMIC_ACQUIRE, AGENT) == 0) {}
        out[1] = out[0]; // here
    }
}

// case flag_without_acquire: race, grid 2
CASE(flag_without_acquire) {
    if (t != 0)
        return;
    if (g == 0) {
        out[0] = in[5] + 1; // here
        __hip_atomic_store(flags, 1, __ATOMIC_RELEASE, AGENT);
    } else {
        while (__hip_atomic_load(flags, BUG(__ATOMIC_RELAXED) FIX(__ATOMIC_ACQUIRE), AGENT) == 0) {}
        out[1] = out[0]; // here
    }
}

// case flag_release_scope: race, grid 2
CASE(flag_release_scope) {
    if (t != 0)
        return;
    if (g == 0) {
        out[0] = in[5] + 1; // here
        __hip_atomic_store(flags, 1, __ATOMIC_RELEASE, BUG(WORKGROUP) FIX(AGENT));
    } else {
        while (__hip_atomic_load(flags, __ATOMIC_ACQUIRE, AGENT) == 0) {}
        out[1] = out[0]; // here
    }
}

// case flag_acquire_scope: race, grid 2
CASE(flag_acquire_scope) {
    if (t != 0)
        return;
    if (g == 0) {
        out[0] = in[5] + 1; // here
        __hip_atomic_store(flags, 1, __ATOMIC_RELEASE, AGENT);
    } else {
        while (__hip_atomic_load(flags, __ATOMIC_ACQUIRE, BUG(WORKGROUP) FIX(AGENT)) == 0) {}
        out[1] = out[0]; // here
    }
}

// case flag_without_barrier: race, grid 2
CASE(flag_without_barrier) {
    if (g == 0) {
        out[t] = in[t] + 1; // here
        FIX(__threadfence();)
        FIX(__syncthreads();)
        if (t == 0) {
            __threadfence();
            atomicExch(flags, 1);
        }
    } else {
        if (t == 0)
            while (atomicAdd(flags, 0) == 0) {}
        __syncthreads();
        __threadfence();
        out[256 + t] = out[255 - t]; // here
    }
}

// case atomic_and_plain: race, grid 4
CASE(atomic_and_plain) {
    if (t == 0) {
        if (g BUG(!= 2) FIX(< 4))
            atomicAdd(out, in[g] + 1); // here
        else
            out[0] = out[0] + 1;
    }
}

// case atomic_and_read: race, grid 4
CASE(atomic_and_read) {
    if (t == 0) {
        atomicAdd(out, in[g] + 1); // here
        out[64 + g] = BUG(out[0]) FIX(g); // here
    }
}

// case maximum: race, grid 4
CASE(maximum) {
    if (t == 0) {
        FIX(atomicMax(out, in[g] + g);)
        BUG(if (in[g] + g > out[0]) out[0] = in[g] + g;) // here
    }
}

// case bins_of_groups: race, grid 4
CASE(bins_of_groups) {
    FIX(atomicAdd(&out[in[i] % 64], 1);)
    BUG(out[t % 64] = out[t % 64] + in[i] + 1;) // here
}

// case stencil_in_place: race, grid 4
CASE(stencil_in_place) {
    int left = i == 0 ? 0 : BUG(out[i - 1]) FIX(in[i - 1]); // here
    FIX(out[i] = left + in[i];)
    BUG(__syncthreads(); out[i] = left + in[i] + 1;) // here
}

__device__ int total;

// case device_variable: race, grid 4
CASE(device_variable) {
    if (t == 0)
        FIX(atomicAdd(&total, in[g] + 1);) BUG(total += in[g] + 1;) // here
}

// case raw_read: uninitialized-read
CASE(raw_read) {
    FIX(raw[t] = t;)
    out[t] = raw[t]; // here
}

// case raw_tail: uninitialized-read
CASE(raw_tail) {
    if (t BUG(< 255) FIX(< 256))
        raw[t] = in[t];
    __syncthreads();
    out[t] = raw[255 - t]; // here
}

// case raw_octet: uninitialized-read
CASE(raw_octet) {
    unsigned char* octets = reinterpret_cast<unsigned char*>(raw);
    octets[2 * t] = 1;
    FIX(octets[2 * t + 1] = 2;)
    __syncthreads();
    out[t] = octets[(2 * t + 3) % 512]; // here
}

// case raw_scalar: uninitialized-read
CASE(raw_scalar) {
    out[t] = in[t] + FIX(flags) BUG(raw)[n / 1000]; // here
}

// case raw_atomic: uninitialized-read
CASE(raw_atomic) {
    FIX(raw[t] = 0;)
    atomicAdd(&raw[t], in[t]); // here
}

// case raw_accumulator: uninitialized-read, grid 2
CASE(raw_accumulator) {
    raw[i] BUG(+=) FIX(=) in[i]; // here
}

// case raw_vector: uninitialized-read
CASE(raw_vector) {
    int4* vectors = reinterpret_cast<int4*>(raw);
    vectors[t].x = in[t];
    vectors[t].y = t;
    FIX(vectors[t].z = vectors[t].w = 0;)
    __syncthreads();
    int4 v = vectors[255 - t]; // here
    out[t] = v.x + v.y + v.z + v.w;
}

// case past_end: memory-fault, grid 16
CASE(past_end) {
    out[i BUG(+ (n > 0))] = in[i]; // here
}

// case before_start: memory-fault
CASE(before_start) {
    out[t] = FIX(t == 0 ? 0 :) in[t - 1]; // here
}

// case loop_past_end: memory-fault
CASE(loop_past_end) {
    int sum = 0;
#pragma unroll 1
    for (int k = t; BUG(k <= 4096) FIX(k < 4096); k += 256)
        sum += in[k]; // here
    out[t] = sum;
}

// case vector_past_end: memory-fault
CASE(vector_past_end) {
    const int4* vectors = reinterpret_cast<const int4*>(in BUG(+ n / 500));
    int4 v = vectors[1023 - t]; // here
    out[t] = v.x + v.y + v.z + v.w;
}

// case atomic_past_end: memory-fault
CASE(atomic_past_end) {
    atomicAdd(&flags[t % 64 BUG(+ (n > 0))], 1); // here
}

// case wrong_stride: memory-fault, grid 16
CASE(wrong_stride) {
    out[g * BUG(264) FIX(256) + t] = t; // here
}

// case misaligned_atomic: misaligned-access
CASE(misaligned_atomic) {
    char* place = reinterpret_cast<char*>(out + t) BUG(+ n % 998);
    atomicAdd(reinterpret_cast<int*>(place), 1); // here
}

// case misaligned_long_atomic: misaligned-access
CASE(misaligned_long_atomic) {
    auto* place = reinterpret_cast<unsigned long long*>(out + 2 * t BUG(+ n % 999));
    atomicAdd(place, 1ull); // here
}

// case spin_on_flag: spin, grid 2
CASE(spin_on_flag) {
    FIX(if (g == 0 && t == 0) __hip_atomic_store(flags, 1, __ATOMIC_RELEASE, AGENT);)
    while (__hip_atomic_load(flags, __ATOMIC_ACQUIRE, AGENT) == 0) {} // here
    out[i] = 1;
}

// case spin_on_lock: spin, grid 2
CASE(spin_on_lock) {
    if (t != 0)
        return;
    while (atomicCAS(flags, 0, 1) != 0) {} // here
    __threadfence();
    out[0] = out[0] + 1;
    __threadfence();
    FIX(atomicExch(flags, 0);)
}

// case spin_in_group: spin
CASE(spin_in_group) {
    if (t < 64)
        while (__hip_atomic_load(flags, __ATOMIC_RELAXED, AGENT) BUG(!= 4) FIX(< 3)) {} // here
    else if (t % 64 == 0)
        atomicAdd(flags, 1);
}
