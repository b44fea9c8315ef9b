// The same functions on the host and in a kernel: integers, floating point, control flow, private arrays, calls, LDS.
// The program loads the kernel from a code object, so one program serves all GPUs and optimisation levels.
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#define BOTH __host__ __device__

namespace {

template <typename To, typename From>
BOTH To cast_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

// Any NaN is one: its bits depend on the hardware.
BOTH uint64_t bits_of(float x) { return x != x ? 0x7fc00000u : cast_bits<uint32_t>(x); }
BOTH uint64_t bits_of(double x) { return x != x ? 0x7ff8000000000000u : cast_bits<uint64_t>(x); }

BOTH uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 29;
    return x * 0xc4ceb9fe1a85ec53ull ^ x >> 31;
}

BOTH uint64_t wide_integers(uint64_t a, uint64_t b)
{
    const int64_t s = int64_t(a), t = int64_t(b | 1);
    uint64_t r = a / (b | 1) + a % (b >> 7 | 1) + uint64_t(s / (t | 0x100) + s % (t | 0x10));
    r ^= a << (b & 63) | a >> (b & 31);
    r += uint64_t(s >> (b & 63));
    r += a * b;
    r ^= (a > b) + 2 * (s > t) + 4 * (a + b < a);
    return r;
}

BOTH uint64_t narrow_integers(uint64_t a, uint64_t b)
{
    const int8_t x = int8_t(a), y = int8_t(b | 1);
    const uint16_t u = uint16_t(a >> 8), v = uint16_t(b >> 8 | 1);
    const int32_t i = int32_t(a), j = int32_t(b | 0x101);
    const uint32_t m = uint32_t(a >> 16), n = uint32_t(b >> 16 | 1);
    uint64_t r = uint8_t(x * y) + uint64_t(uint8_t(x / y)) * 256 + uint64_t(uint16_t(u * v)) * 65536;
    r += uint32_t(i % j) + uint64_t(m / n) + m % n;
    r ^= uint64_t(__builtin_popcount(m)) << 40 | uint64_t(__builtin_clz(m | 1)) << 48 |
         uint64_t(__builtin_ctzll(b | 1ull << 63)) << 56;
    r += uint32_t(m << (n & 31)) ^ uint32_t(i >> (n & 15));
    return r;
}

BOTH uint64_t single(uint64_t a, uint64_t b)
{
    const float x = cast_bits<float>(uint32_t(a)), y = cast_bits<float>(uint32_t(b));
    uint64_t r = bits_of(x + y) * 3 + bits_of(x - y) * 5 + bits_of(x * y) * 7;
    r += bits_of(x / y) * 11 + bits_of(sqrtf(fabsf(x))) * 13;
    r ^= (x < y) + 2 * (x == y) + 4 * (x >= y) + 8 * (x != y);
    const float small = float(int32_t(a) >> 8);
    r += bits_of(small) + uint64_t(int64_t(small)) + bits_of(floorf(small / 3)) + bits_of(truncf(small / 7));
    r += bits_of(__builtin_fmaf(x, 0.5f, y)) + bits_of(rintf(small * 0.25f));
    return r;
}

BOTH uint64_t twofold(uint64_t a, uint64_t b)
{
    const double x = cast_bits<double>(a), y = cast_bits<double>(b);
    uint64_t r = bits_of(x + y) * 3 + bits_of(x - y) * 5 + bits_of(x * y) * 7;
    r += bits_of(x / y) * 11 + bits_of(sqrt(fabs(x))) * 13;
    r ^= (x < y) + 2 * (x == y) + 4 * (x > y);
    const double n = double(int64_t(a) >> 12);
    r += bits_of(n) + uint64_t(int64_t(n / 3)) + bits_of(float(x)) + bits_of(double(cast_bits<float>(uint32_t(b))));
    r += bits_of(__builtin_fma(x, y, n)) + bits_of(floor(n / 1024));
    return r;
}

BOTH uint64_t control(uint64_t a, uint64_t b)
{
    uint64_t r = 0;
    for(uint64_t k = a & 15; k < 24; ++k)
    {
        if((b >> (k & 7) & 3) == 2)
            continue;
        switch((a >> k) % 6)
        {
        case 0: r += k; break;
        case 1: r ^= b << (k & 3); [[fallthrough]];
        case 2: r = mix(r + k); break;
        case 3:
            if(r & 1)
                r = 3 * r + 1;
            else
                r >>= 1;
            break;
        case 4: r -= a; break;
        default:
            if(r > b)
                return r ^ k;
        }
    }
    return r;
}

// Indices that are known at run time only keep the array in memory.
BOTH uint64_t private_array(uint64_t a, uint64_t b)
{
    uint32_t heap[24];
    for(int k = 0; k < 24; ++k)
        heap[k] = uint32_t(mix(a + k) >> 20);
    for(int k = 0; k < 24; ++k) // selection sort
    {
        int least = k;
        for(int other = k + 1; other < 24; ++other)
            if(heap[other] < heap[least])
                least = other;
        const uint32_t kept = heap[k];
        heap[k]             = heap[least];
        heap[least]         = kept;
    }
    return uint64_t(heap[b % 24]) << 32 | heap[(b >> 9) % 24];
}

struct Pair
{
    uint16_t low;
    uint8_t octets[5];
    int64_t value;
};

__attribute__((noinline)) BOTH Pair turn(Pair given, int by)
{
    Pair made = given;
    for(int k = 0; k < 5; ++k)
        made.octets[(k + by) % 5] = given.octets[k];
    made.value = -given.value + by;
    made.low   = uint16_t(given.low * 3 + by);
    return made;
}

__attribute__((noinline)) BOTH uint64_t ackermann_like(uint64_t depth, uint64_t x)
{
    return depth == 0 ? mix(x) : ackermann_like(depth - 1, x + depth) ^ ackermann_like(depth / 2, x * 3);
}

BOTH uint64_t calls(uint64_t a, uint64_t b)
{
    Pair pair{uint16_t(a), {1, 2, 3, 4, uint8_t(b)}, int64_t(b)};
    for(int k = 0; k < 3; ++k)
        pair = turn(pair, int(a >> k & 3));
    uint64_t r = ackermann_like(3 + (a & 1), b) + pair.low + uint64_t(pair.value);
    for(const uint8_t octet : pair.octets)
        r = r * 31 + octet;
    return r;
}

BOTH uint64_t run_case(int number, uint64_t a, uint64_t b)
{
    switch(number % 7)
    {
    case 0: return wide_integers(a, b);
    case 1: return narrow_integers(a, b);
    case 2: return single(a, b);
    case 3: return twofold(a, b);
    case 4: return control(a, b);
    case 5: return private_array(a, b);
    default: return calls(a, b);
    }
}

constexpr int THREADS = 128;

// The sum over a work-group as the kernel computes it.
uint64_t sum_group(const std::vector<uint64_t>& values, int group)
{
    uint64_t total = 0;
    for(int k = 0; k < THREADS; ++k)
        total += values[group * THREADS + k];
    return total;
}

} // namespace

extern "C" __global__ void run_cases(const uint64_t* given, uint64_t* found, uint64_t* sums, unsigned* most)
{
    __shared__ uint64_t room[THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    found[i]    = run_case(i / 32, given[2 * i], given[2 * i + 1]); // whole and half waves have the same case
    room[threadIdx.x] = found[i];
    __syncthreads();
    for(int half = THREADS / 2; half > 0; half /= 2)
    {
        if(threadIdx.x < half)
            room[threadIdx.x] += room[threadIdx.x + half];
        __syncthreads();
    }
    if(threadIdx.x == 0)
        sums[blockIdx.x] = room[0];
    atomicMax(most, unsigned(found[i]));
}

int main(int, char** words)
{
    constexpr int groups = 7, n = groups * THREADS;
    std::vector<uint64_t> given(2 * n), expected(n), found(n), sums(groups);
    for(int i = 0; i < 2 * n; ++i)
        given[i] = mix(i + 1) >> (i % 5 == 0 ? 40 : 0);
    unsigned highest = 0, most = 0;
    for(int i = 0; i < n; ++i)
    {
        expected[i] = run_case(i / 32, given[2 * i], given[2 * i + 1]);
        highest     = unsigned(expected[i]) > highest ? unsigned(expected[i]) : highest;
    }
    hipModule_t module;
    hipFunction_t kernel;
    uint64_t *d_given, *d_found, *d_sums;
    unsigned* d_most;
    if(hipModuleLoad(&module, words[1]) != hipSuccess || hipModuleGetFunction(&kernel, module, "run_cases") != hipSuccess)
        return 3;
    if(hipMalloc(&d_given, 16 * n) != hipSuccess || hipMalloc(&d_found, 8 * n) != hipSuccess ||
       hipMalloc(&d_sums, 8 * groups) != hipSuccess || hipMalloc(&d_most, 4) != hipSuccess)
        return 3;
    void* arguments[] = {&d_given, &d_found, &d_sums, &d_most};
    if(hipMemcpy(d_given, given.data(), 16 * n, hipMemcpyHostToDevice) != hipSuccess ||
       hipMemset(d_most, 0, 4) != hipSuccess ||
       hipModuleLaunchKernel(kernel, groups, 1, 1, THREADS, 1, 1, 0, nullptr, arguments, nullptr) != hipSuccess ||
       hipMemcpy(found.data(), d_found, 8 * n, hipMemcpyDeviceToHost) != hipSuccess ||
       hipMemcpy(sums.data(), d_sums, 8 * groups, hipMemcpyDeviceToHost) != hipSuccess ||
       hipMemcpy(&most, d_most, 4, hipMemcpyDeviceToHost) != hipSuccess)
        return 3;
    int wrong = most != highest;
    for(int i = 0; i < n; ++i)
        if(found[i] != expected[i] && ++wrong < 4)
            std::printf("case %d, element %d: %016llx instead of %016llx\n", i / 32 % 7, i, (unsigned long long)found[i],
                        (unsigned long long)expected[i]);
    for(int group = 0; group < groups; ++group)
        wrong += sums[group] != sum_group(expected, group);
    std::printf("%d of %d are wrong\n", wrong, n + groups + 1);
    return wrong != 0;
}
