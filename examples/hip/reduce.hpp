// The sum of each group of 256 numbers, as a library might have it.
#pragma once

#include <hip/hip_runtime.h>

constexpr int GROUP = 256;

__global__ void sum_groups(const float* values, float* sums, int count)
{
    __shared__ float room[GROUP];
    const int index   = blockIdx.x * GROUP + threadIdx.x;
    room[threadIdx.x] = index < count ? values[index] : 0;
    __syncthreads();
    for(int half = GROUP / 2; half > 0; half /= 2)
    {
        if(threadIdx.x < half)
            room[threadIdx.x] += room[threadIdx.x + half];
        __syncthreads(); // without it, strict mode reports a wrong sum
    }
    if(threadIdx.x == 0)
        sums[blockIdx.x] = room[0];
}
