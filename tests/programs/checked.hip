// Sums groups of 256 values. With an argument it does so with bugs: races, unwritten memory, and memory that is not freed.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

template <bool Wrong>
__global__ void sum_groups(const int* values, int* sums, int* total)
{
    __shared__ int room[256];
    const int t = threadIdx.x;
    room[t]     = values[blockIdx.x * 256 + t];
    __syncthreads();
    for(int step = 128; step > 0; step /= 2)
    {
        if(t < step)
            room[t] += room[t + step]; // race
        if constexpr(!Wrong)
            __syncthreads();
    }
    if(t == 0)
    {
        sums[blockIdx.x] = room[0];
        if constexpr(Wrong)
            *total += room[0]; // unwritten, race
        else
            atomicAdd(total, room[0]);
    }
}

int main(int count, char**)
{
    const bool wrong = count > 1;
    std::vector<int> given(1024, 1), sums(4);
    int *values, *device_sums, *total, *host;
    (void)hipMalloc(&values, 1024 * sizeof(int));
    (void)hipMalloc(&device_sums, 4 * sizeof(int));
    (void)hipMalloc(&total, sizeof(int));
    (void)hipHostMalloc(&host, 4 * sizeof(int), 0);
    (void)hipMemcpy(values, given.data(), 1024 * sizeof(int), hipMemcpyHostToDevice);
    if(wrong)
        sum_groups<true><<<4, 256>>>(values, device_sums, total);
    else
    {
        (void)hipMemset(total, 0, sizeof(int));
        sum_groups<false><<<4, 256>>>(values, device_sums, total);
    }
    (void)hipMemcpy(sums.data(), device_sums, 4 * sizeof(int), hipMemcpyDeviceToHost);
    std::printf("%d %d\n", sums[0], sums[3]);
    (void)hipFree(values);
    (void)hipFree(device_sums);
    (void)hipHostFree(host);
    if(!wrong)
        (void)hipFree(total);
    return 0;
}
