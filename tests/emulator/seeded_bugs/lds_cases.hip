#include "cases.hpp"

// case reverse: race
CASE(reverse) {
    __shared__ int s[256];
    s[t] = in[t]; // here
    FIX(__syncthreads();)
    out[t] = s[255 - t]; // here
}

// case tree: race
CASE(tree) {
    __shared__ int s[256];
    s[t] = in[t];
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (t < step)
            s[t] += s[t + step]; // here
        FIX(__syncthreads();)
    }
    if (t == 0)
        out[0] = s[0];
}

// case reuse: race
CASE(reuse) {
    __shared__ int s[256];
    for (int k = 0; k < 4; k++) {
        s[t] = in[t + 256 * k]; // here
        __syncthreads();
        out[t + 256 * k] = s[(t + 64) % 256]; // here
        FIX(__syncthreads();)
    }
}

// case transpose: race
CASE(transpose) {
    __shared__ int s[16][17];
    s[t / 16][t % 16] = in[t]; // here
    FIX(__syncthreads();)
    out[t] = s[t % 16][t / 16]; // here
}

// case double_buffer: race
CASE(double_buffer) {
    __shared__ int s[2][256];
    s[0][t] = in[t];
    __syncthreads();
    for (int k = 0; k < 4; k++) {
        s[BUG(k % 2) FIX((k + 1) % 2)][t] = in[t + 256 * k]; // here
        out[t + 256 * k] = s[k % 2][255 - t]; // here
        __syncthreads();
    }
}

// case scan: race
CASE(scan) {
    __shared__ int s[256];
    s[t] = in[t];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        int left = t >= step ? s[t - step] : 0; // here
        FIX(__syncthreads();)
        s[t] += left; // here
        __syncthreads();
    }
    out[t] = s[t];
}

// case histogram_clear: race
CASE(histogram_clear) {
    __shared__ int bins[256];
    bins[t] = 0; // here
    FIX(__syncthreads();)
    atomicAdd(&bins[in[t] * 7 % 256], 1); // here
    __syncthreads();
    out[t] = bins[t];
}

// case histogram_read: race
CASE(histogram_read) {
    __shared__ int bins[256];
    bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[in[t] * 7 % 256], 1); // here
    FIX(__syncthreads();)
    out[t] = bins[t]; // here
}

// case counter: race
CASE(counter) {
    __shared__ int count;
    if (t == 0)
        count = 0; // here
    FIX(__syncthreads();)
    out[atomicAdd(&count, 1)] = 1; // here
}

// case broadcast: race
CASE(broadcast) {
    __shared__ int value;
    if (t == 0)
        value = in[0]; // here
    FIX(__syncthreads();)
    out[t] = value + t; // here
}

// case halo: race
CASE(halo) {
    __shared__ int s[258];
    s[t + 1] = in[t]; // here
    if (t == 0)
        s[0] = s[257] = 0;
    FIX(__syncthreads();)
    out[t] = s[t] + s[t + 2]; // here
}

// case octets: race
CASE(octets) {
    __shared__ unsigned char s[256];
    s[t] = static_cast<unsigned char>(in[t]); // here
    FIX(__syncthreads();)
    out[t] = s[255 - t]; // here
}

// case halves: race
CASE(halves) {
    __shared__ short s[256];
    s[t] = static_cast<short>(in[t]); // here
    FIX(__syncthreads();)
    out[t] = s[255 - t]; // here
}

// case pairs: race
CASE(pairs) {
    __shared__ long long s[256];
    s[t] = in[t]; // here
    FIX(__syncthreads();)
    out[t] = static_cast<int>(s[255 - t]); // here
}

// case vectors: race
CASE(vectors) {
    __shared__ int4 s[256];
    s[t] = make_int4(in[t], t, 2, 3); // here
    FIX(__syncthreads();)
    int4 v = s[255 - t]; // here
    out[t] = v.x + v.y + v.w;
}

// case tiled_product: race
CASE(tiled_product) {
    __shared__ int a[16][16], b[16][16];
    int x = t % 16, y = t / 16, sum = 0;
    for (int k = 0; k < 4; k++) {
        a[y][x] = in[y * 64 + k * 16 + x];
        b[y][x] = in[(k * 16 + y) * 16 + x];
        __syncthreads();
        for (int j = 0; j < 16; j++)
            sum += a[y][j] * b[j][x]; // here
        FIX(__syncthreads();)
    }
    out[t] = sum;
}

// case two_uses: race
CASE(two_uses) {
    __shared__ int s[256];
    float* floats = reinterpret_cast<float*>(s);
    s[t] = in[t];
    __syncthreads();
    int sum = s[255 - t]; // here
    FIX(__syncthreads();)
    floats[t] = 0.5f * sum; // here
    __syncthreads();
    out[t] = static_cast<int>(floats[t]);
}

// case two_winners: race
CASE(two_winners) {
    __shared__ int winner;
    if (t % 64 == 0 FIX(&& t < 64))
        winner = t + 1; // here
    __syncthreads();
    out[t] = winner;
}

// case neighbour_wave: race
CASE(neighbour_wave) {
    __shared__ int s[256];
    s[t] = in[t]; // here
    FIX(__syncthreads();)
    BUG(__builtin_amdgcn_wave_barrier();)
    out[t] = s[t ^ 64]; // here
}

struct Particle {
    int x, y;
};

// case members: race
CASE(members) {
    __shared__ Particle s[256];
    s[t].x = in[t];
    s[t].y = t; // here
    FIX(__syncthreads();)
    out[t] = s[t ^ 128].y; // here
}

// case raw_barrier: race
CASE(raw_barrier) {
    __shared__ int s[256];
    s[t] = in[t]; // here
    FIX(__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");)
    __builtin_amdgcn_s_barrier();
    FIX(__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");)
    out[t] = s[255 - t]; // here
}

// case raw_barrier_vectors: race
CASE(raw_barrier_vectors) {
    __shared__ int4 s[256];
    s[t] = make_int4(in[t], 1, 2, t); // here
    FIX(__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");)
    __builtin_amdgcn_s_barrier();
    FIX(__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");)
    out[t] = s[255 - t].w; // here
}

// case lock: race
CASE(lock) {
    __shared__ int locked, sum;
    if (t == 0)
        locked = sum = 0;
    __syncthreads();
    if (t % 64 == 0) {
        FIX(while (atomicCAS(&locked, 0, 1) != 0) {} __threadfence_block();)
        sum += in[t]; // here
        FIX(__threadfence_block(); atomicExch(&locked, 0);)
    }
    __syncthreads();
    out[t] = sum;
}

// case lds_half: uninitialized-read
CASE(lds_half) {
    __shared__ int s[256];
    if (t < BUG(128) FIX(256))
        s[t] = in[t];
    __syncthreads();
    out[t] = s[t]; // here
}

// case lds_edge: uninitialized-read
CASE(lds_edge) {
    __shared__ int s[258];
    s[t + 1] = in[t];
    FIX(if (t == 0) s[0] = s[257] = 0;)
    __syncthreads();
    out[t] = s[t] + 3 * s[t + 2]; // here
}

// case lds_counter: uninitialized-read
CASE(lds_counter) {
    __shared__ int count;
    FIX(if (t == 0) count = 0; __syncthreads();)
    out[t] = atomicAdd(&count, in[t]); // here
}

// case lds_octets: uninitialized-read
CASE(lds_octets) {
    __shared__ unsigned char s[256];
    if (t % 2 == 0 FIX(|| true))
        s[t] = static_cast<unsigned char>(in[t]);
    __syncthreads();
    out[t] = s[255 - t]; // here
}

// case lds_tail: uninitialized-read
CASE(lds_tail) {
    __shared__ int s[256];
    for (int k = t; k < BUG(n / 4) FIX(256); k += 256)
        s[k] = in[k];
    __syncthreads();
    out[t] = s[255 - t]; // here
}

// case lds_past_end: lds-fault
CASE(lds_past_end) {
    __shared__ int s[256];
    s[t BUG(+ (n > 0))] = in[t]; // here
    __syncthreads();
    out[t] = s[255 - t];
}

// case lds_loop_past_end: lds-fault
CASE(lds_loop_past_end) {
    __shared__ int s[256];
    s[t] = in[t];
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int k = t; BUG(k <= 256) FIX(k < 256); k++)
        sum += s[k]; // here
    out[t] = sum;
}

// case lds_before_start: lds-fault
CASE(lds_before_start) {
    __shared__ int s[256];
    s[t] = in[t];
    __syncthreads();
    out[t] = FIX(t == 0 ? 0 :) s[t - 1]; // here
}

// case lds_misaligned_atomic: misaligned-access
CASE(lds_misaligned_atomic) {
    __shared__ int s[257];
    s[t] = 0;
    __syncthreads();
    char* place = reinterpret_cast<char*>(&s[t]) BUG(+ n % 998);
    atomicAdd(reinterpret_cast<int*>(place), 1); // here
    __syncthreads();
    out[t] = s[t];
}

// case barrier_in_branch: divergent-barrier
CASE(barrier_in_branch) {
    __shared__ int s[256];
    s[t] = in[t];
    BUG(if (t < 128))
        __syncthreads(); // here
    out[t] = s[t];
}

// case barrier_after_return: divergent-barrier
CASE(barrier_after_return) {
    __shared__ int s[256];
    BUG(if (t >= 192) return;)
    s[t] = in[t];
    __syncthreads(); // here
    out[t] = s[t ^ 64];
}

// case barrier_in_half_wave: divergent-barrier
CASE(barrier_in_half_wave) {
    __shared__ int s[256];
    s[t] = in[t];
    BUG(if (t % 64 < 16))
        __syncthreads(); // here
    out[t] = s[t];
}

// case barrier_in_loop: divergent-barrier
CASE(barrier_in_loop) {
    __shared__ int s[256];
    s[t] = 0;
    for (int k = 0; k < BUG(1 + t / 64) FIX(4); k++) {
        s[t] += in[t + k];
        __syncthreads(); // here
    }
    out[t] = s[t];
}

// case barrier_of_odd_threads: divergent-barrier
CASE(barrier_of_odd_threads) {
    __shared__ int s[256];
    s[t] = in[t];
    BUG(if (in[t] & 1))
        __syncthreads(); // here
    out[t] = s[t];
}
