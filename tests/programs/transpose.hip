// Transposes a matrix through LDS, and sums squares: the columns of a tile are in one bank, and a reduction idles lanes.
#include <hip/hip_runtime.h>
#include <cstdio>
#include <vector>

__global__ void transpose(const float* x, float* y, int n)
{
    __shared__ float tile[32][32];
    int column = threadIdx.x, row = threadIdx.y;
    tile[row][column] = x[(blockIdx.y * 32 + row) * n + blockIdx.x * 32 + column];
    __syncthreads();
    y[(blockIdx.x * 32 + row) * n + blockIdx.y * 32 + column] = tile[column][row];
}

__global__ void sum(const float* x, float* y, int n)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    float own = 0;
    for(int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256)
        own += x[i] * x[i];
    part[t] = own;
    __syncthreads();
    for(int step = 128; step > 0; step /= 2)
    {
        if(t < step)
            part[t] += part[t + step];
        __syncthreads();
    }
    if(t == 0)
        y[blockIdx.x] = part[0];
}

int main()
{
    const int n = 128;
    std::vector<float> x(n * n, 1.0f), y(4);
    float *dx, *dy, *ds;
    (void)hipMalloc(&dx, n * n * 4); (void)hipMalloc(&dy, n * n * 4); (void)hipMalloc(&ds, 16);
    (void)hipMemcpy(dx, x.data(), n * n * 4, hipMemcpyHostToDevice);
    for(int k = 0; k < 3; k++)
        transpose<<<dim3(4, 4), dim3(32, 32)>>>(dx, dy, n);
    sum<<<4, 256>>>(dy, ds, n * n);
    (void)hipMemcpy(y.data(), ds, 16, hipMemcpyDeviceToHost);
    std::printf("%g\n", y[0] + y[1] + y[2] + y[3]);
    return y[0] + y[1] + y[2] + y[3] == n * n ? 0 : 1;
}
