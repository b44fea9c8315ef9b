// Runs a kernel of a pack on a GPU and checks its result. Without a GPU:
//
//   tilewright emulate --gpu gfx942 build/run <folder of the pack> gfx942
#include <hip/hip_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <tilewright/gemm.h>
#include <tilewright/tilewright.hpp>

namespace {

constexpr std::int64_t M = 128, N = 64, K = 96;

// fp16 of a small whole number, and back: the host's compiler may have no such type.
std::uint16_t half_of(int value)
{
    if(value == 0)
        return 0;
    const int size = std::abs(value), exponent = std::ilogb(size);
    return static_cast<std::uint16_t>((value < 0) << 15 | (exponent + 15) << 10 | ((size << 10 >> exponent) & 1023));
}

double number_of(std::uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return half >> 15 ? -size : size;
}

int a_at(std::int64_t m, std::int64_t k) { return static_cast<int>((m + 2 * k) % 5) - 2; }
int b_at(std::int64_t k, std::int64_t n) { return static_cast<int>((3 * k + n) % 7) - 3; }

// Memory of the device, freed at the end.
class Buffer
{
    public:
    explicit Buffer(std::size_t bytes) { check(hipMalloc(&address_, bytes)); }
    ~Buffer() { static_cast<void>(hipFree(address_)); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* address() const { return address_; }

    static void check(hipError_t status)
    {
        if(status != hipSuccess)
            throw tilewright::Error(std::string("HIP: ") + hipGetErrorString(status));
    }

    private:
    void* address_ = nullptr;
};

// How many elements of C = A * B are wrong.
int run(const tilewright::Pack& pack)
{
    std::vector<std::uint16_t> a, b, c(M * N);
    for(std::int64_t m = 0; m < M; ++m) // row-major
        for(std::int64_t k = 0; k < K; ++k)
            a.push_back(half_of(a_at(m, k)));
    for(std::int64_t n = 0; n < N; ++n) // column-major
        for(std::int64_t k = 0; k < K; ++k)
            b.push_back(half_of(b_at(k, n)));
    const Buffer device_a(2 * a.size()), device_b(2 * b.size()), device_c(2 * c.size());
    Buffer::check(hipMemcpy(device_a.address(), a.data(), 2 * a.size(), hipMemcpyHostToDevice));
    Buffer::check(hipMemcpy(device_b.address(), b.data(), 2 * b.size(), hipMemcpyHostToDevice));

    auto args     = tilewright::make_args<tw_gemm_args>();
    args.a        = device_a.address();
    args.b        = device_b.address();
    args.c        = device_c.address();
    args.m        = M;
    args.n        = N;
    args.k        = K;
    args.stride_a = args.stride_b = K;
    args.stride_c = N;
    args.k_batch = args.batch = 1;
    const auto kernel = pack.best(args, [](const tilewright::Kernel& each) {
        return each.field("dtype_a") == "fp16" && each.field("layout") == "rcr" && each.field("variant") == "standard";
    });
    if(!kernel)
        throw tilewright::Error("the pack has no kernel for fp16 in the layout rcr that supports this problem");
    std::cout << "runs " << kernel->slug() << '\n';
    kernel->run(args, nullptr);
    Buffer::check(hipDeviceSynchronize());
    Buffer::check(hipMemcpy(c.data(), device_c.address(), 2 * c.size(), hipMemcpyDeviceToHost));

    int wrong = 0;
    for(std::int64_t m = 0; m < M; ++m)
        for(std::int64_t n = 0; n < N; ++n)
        {
            int expected = 0;
            for(std::int64_t k = 0; k < K; ++k)
                expected += a_at(m, k) * b_at(k, n);
            wrong += number_of(c[m * N + n]) != expected; // whole numbers below 2048 are exact in fp16
        }
    return wrong;
}

} // namespace

int main(int count, char** words)
{
    if(count != 3)
    {
        std::cerr << "usage: " << words[0] << " <folder of the pack> <GPU>\n";
        return 2;
    }
    try
    {
        const int wrong = run(tilewright::Pack::open(words[1], words[2]));
        std::cout << wrong << " of " << M * N << " elements are wrong\n";
        return wrong == 0 ? 0 : 1;
    }
    catch(const tilewright::Error& error)
    {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
