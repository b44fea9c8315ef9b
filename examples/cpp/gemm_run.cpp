// Multiply two matrices, with nothing hidden.
//
// A plan takes addresses in device memory, in the order of `plan->tensors()`. The other examples leave memory and
// conversions to `tensors.hpp`.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(96).dtype("fp16").layout("rcr");
    const auto plan    = pack.plan(problem);
    std::cout << plan->text();

    // fp16 has no type in C++17. 0x3c00 is 1, 0x4000 is 2.
    const std::vector<std::uint16_t> a(64 * 96, 0x3c00), b(96 * 64, 0x4000);
    std::vector<std::uint16_t> c(64 * 64);
    void *device_a, *device_b, *device_c;
    example::check(hipMalloc(&device_a, 2 * a.size()));
    example::check(hipMalloc(&device_b, 2 * b.size()));
    example::check(hipMalloc(&device_c, 2 * c.size()));
    example::check(hipMemcpy(device_a, a.data(), 2 * a.size(), hipMemcpyHostToDevice));
    example::check(hipMemcpy(device_b, b.data(), 2 * b.size(), hipMemcpyHostToDevice));

    plan->run({device_a, device_b, device_c}, nullptr); // on the default stream; returns when the kernel is queued
    example::check(hipMemcpy(c.data(), device_c, 2 * c.size(), hipMemcpyDeviceToHost)); // waits for it

    // 96 * 1 * 2 = 192 = 1.5 * 2^7: exponent 7 + 15, fraction 0.5.
    const std::uint16_t expected = (7 + 15) << 10 | 1 << 9;
    const auto right             = std::count(c.begin(), c.end(), expected);
    std::cout << right << " of " << c.size() << " elements are 192\n";
    for(void* address : {device_a, device_b, device_c})
        example::check(hipFree(address));
    return right == 64 * 64 ? 0 : 1;
}
