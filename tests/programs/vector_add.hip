// Adds two vectors. Ends with 0 if the sums are right, with 3 if HIP reports an error.
//
//   vector_add <elements> <elements that are allocated>
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void add(const float* a, const float* b, float* c, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        c[i] = a[i] + b[i];
}

#define CHECK(call)                                                                            \
    if(const hipError_t status = (call); status != hipSuccess)                                 \
    {                                                                                          \
        std::printf("%s: %s\n", hipGetErrorName(status), hipGetErrorString(status));           \
        return 3;                                                                              \
    }

int main(int count, char** words)
{
    const int n = count > 1 ? std::atoi(words[1]) : 1000, room = count > 2 ? std::atoi(words[2]) : n;
    hipDeviceProp_t properties;
    CHECK(hipGetDeviceProperties(&properties, 0));
    std::printf("%s\n", properties.gcnArchName);
    std::vector<float> a(n), b(n), c(n);
    for(int i = 0; i < n; ++i)
        a[i] = i, b[i] = 2 * i;
    float *da, *db, *dc;
    CHECK(hipMalloc(&da, n * sizeof(float)));
    CHECK(hipMalloc(&db, n * sizeof(float)));
    CHECK(hipMalloc(&dc, room * sizeof(float)));
    CHECK(hipMemcpy(da, a.data(), n * sizeof(float), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(db, b.data(), n * sizeof(float), hipMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(c.data(), dc, n * sizeof(float), hipMemcpyDeviceToHost));
    int wrong = 0;
    for(int i = 0; i < n; ++i)
        wrong += c[i] != 3.0f * i;
    CHECK(hipFree(da));
    CHECK(hipFree(db));
    std::printf("%d of %d are wrong\n", wrong, n);
    return wrong == 0 ? 0 : 1;
}
