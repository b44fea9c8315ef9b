// Compares the sums with the host's. Whole numbers make them exact in any order.
#include "reduce.hpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                    \
    if(const hipError_t status = (call); status != hipSuccess)                         \
    {                                                                                  \
        std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(status));              \
        return 1;                                                                      \
    }

int main(int, char** words)
{
    const int count  = std::atoi(words[1]);
    const int groups = (count + GROUP - 1) / GROUP;
    std::vector<float> values(count), sums(groups), expected(groups);
    for(int i = 0; i < count; ++i)
    {
        values[i] = float(i % 17 - 8);
        expected[i / GROUP] += values[i];
    }
    float *device_values, *device_sums;
    CHECK(hipMalloc(&device_values, count * sizeof(float)));
    CHECK(hipMalloc(&device_sums, groups * sizeof(float)));
    CHECK(hipMemcpy(device_values, values.data(), count * sizeof(float), hipMemcpyHostToDevice));
    sum_groups<<<groups, GROUP>>>(device_values, device_sums, count);
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(sums.data(), device_sums, groups * sizeof(float), hipMemcpyDeviceToHost));
    CHECK(hipFree(device_values));
    CHECK(hipFree(device_sums));
    std::printf("%s\n", sums == expected ? "PASS" : "FAIL");
    return sums == expected ? 0 : 1;
}
