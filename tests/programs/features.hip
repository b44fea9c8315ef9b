// One part of HIP after another, each named on the command line. A part that is right prints its name.
#include <hip/hip_runtime.h>

#include <hip/hip_cooperative_groups.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define EXPECT(truth)                                                                                     \
    if(!(truth))                                                                                          \
    {                                                                                                     \
        std::printf("line %d is wrong: %s (last error: %s)\n", __LINE__, #truth, hipGetErrorName(hipGetLastError())); \
        std::exit(1);                                                                                     \
    }
#define OK(call) EXPECT((call) == hipSuccess)

__constant__ float factors[4];
__device__ int counter;
__device__ float table[16] = {1, 2, 3, 4};
__managed__ int shared_value = 5;

__global__ void polynomial(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n)
        return;
    y[i] = (factors[1] * x[i] + factors[0]) + table[i & 3];
    atomicAdd(&counter, 1);
}

__global__ void scale(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        y[i] = 3 * x[i];
}

__global__ void increment(int* x) { x[threadIdx.x] += 1; }
__global__ void raise_managed() { shared_value += 2; }

__global__ void reverse(int* x)
{
    extern __shared__ int room[];
    room[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

__global__ void say(int n)
{
    if(threadIdx.x < n)
        printf("thread %d of block %u: %s %5.2f %lld %%\n", int(threadIdx.x), unsigned(blockIdx.x),
               "a text of more than fifty-six bytes, so that it takes two packets", threadIdx.x * 0.5, -1ll);
}

__global__ void check(int* x, int n)
{
    assert(int(threadIdx.x) < n);
    x[threadIdx.x] = 1;
}

// Needs the elements of other work-groups, twice.
__global__ void reverse_all(int* x, int* y, int n)
{
    const auto grid = cooperative_groups::this_grid();
    const int i     = blockIdx.x * blockDim.x + threadIdx.x;
    x[i]            = i;
    grid.sync();
    y[i] = x[n - 1 - i];
    grid.sync();
    x[i] = y[n - 1 - i] + y[i];
}

void symbols()
{
    const float given[4] = {1, 2, 3, 4};
    OK(hipMemcpyToSymbol(HIP_SYMBOL(factors), given, sizeof(given)));
    const int n = 300;
    std::vector<float> x(n), y(n);
    for(int i = 0; i < n; ++i)
        x[i] = i;
    float *dx, *dy;
    OK(hipMalloc(&dx, 4 * n));
    OK(hipMalloc(&dy, 4 * n));
    OK(hipMemcpy(dx, x.data(), 4 * n, hipMemcpyHostToDevice));
    polynomial<<<2, 256>>>(dx, dy, n);
    OK(hipMemcpy(y.data(), dy, 4 * n, hipMemcpyDeviceToHost));
    for(int i = 0; i < n; ++i)
        EXPECT(y[i] == 2.0f * i + 1 + (i & 3) + 1);
    int counted = 0;
    OK(hipMemcpyFromSymbol(&counted, HIP_SYMBOL(counter), sizeof(counted)));
    EXPECT(counted == n);
    void* address = nullptr;
    size_t bytes  = 0;
    OK(hipGetSymbolAddress(&address, HIP_SYMBOL(table)));
    OK(hipGetSymbolSize(&bytes, HIP_SYMBOL(table)));
    EXPECT(address != nullptr && bytes == sizeof(table));
    EXPECT(hipMemcpyToSymbol(HIP_SYMBOL(factors), given, sizeof(given), 4) == hipErrorInvalidValue);
    EXPECT(hipGetSymbolAddress(&address, given) == hipErrorInvalidSymbol);
    shared_value += 10;
    raise_managed<<<1, 1>>>();
    OK(hipDeviceSynchronize());
    EXPECT(shared_value == 17);
}

void memory()
{
    const int n = 1000;
    float *pinned, *managed, *d;
    OK(hipHostMalloc(reinterpret_cast<void**>(&pinned), 4 * n, 0));
    OK(hipMallocManaged(reinterpret_cast<void**>(&managed), 4 * n));
    for(int i = 0; i < n; ++i)
        pinned[i] = i;
    scale<<<4, 256>>>(pinned, managed, n);
    OK(hipDeviceSynchronize());
    for(int i = 0; i < n; ++i)
        EXPECT(managed[i] == 3.0f * i);
    size_t pitch = 0, left = 0, total = 0, again = 0;
    OK(hipMallocPitch(reinterpret_cast<void**>(&d), &pitch, 400, 7));
    EXPECT(pitch >= 400 && pitch % 256 == 0);
    OK(hipMemcpy2D(d, pitch, pinned, 400, 400, 7, hipMemcpyHostToDevice));
    OK(hipMemset(managed, 0, 4 * n));
    OK(hipMemcpy2D(managed, 400, d, pitch, 400, 7, hipMemcpyDeviceToHost));
    for(int i = 0; i < 700; ++i)
        EXPECT(managed[i] == pinned[i]);
    OK(hipMemsetD32(reinterpret_cast<hipDeviceptr_t>(d), 0x3f800000, 100));
    OK(hipMemcpyDtoH(pinned, reinterpret_cast<hipDeviceptr_t>(d), 400));
    EXPECT(pinned[0] == 1 && pinned[99] == 1);
    EXPECT(hipMemsetD32(reinterpret_cast<hipDeviceptr_t>(d), 0, 1 << 20) == hipErrorInvalidValue);
    OK(hipMemGetInfo(&left, &total));
    EXPECT(left < total);
    hipPointerAttribute_t attributes;
    OK(hipPointerGetAttributes(&attributes, d));
    EXPECT(attributes.device == 0 && attributes.devicePointer == d && attributes.hostPointer == nullptr);
    hipDeviceptr_t start;
    size_t bytes = 0;
    OK(hipMemGetAddressRange(&start, &bytes, reinterpret_cast<hipDeviceptr_t>(d + 5)));
    EXPECT(start == reinterpret_cast<hipDeviceptr_t>(d) && bytes == 7 * pitch);
    int* async;
    OK(hipMallocAsync(reinterpret_cast<void**>(&async), 64, nullptr));
    OK(hipFreeAsync(async, nullptr));
    OK(hipFree(d));
    OK(hipFree(managed));
    OK(hipHostFree(pinned));
    OK(hipMemGetInfo(&again, &total));
    EXPECT(again > left);
}

void count_up(hipStream_t, hipError_t, void* data) { ++*static_cast<int*>(data); }

void streams()
{
    hipStream_t one, two;
    hipEvent_t begin, end;
    OK(hipStreamCreate(&one));
    OK(hipStreamCreateWithPriority(&two, hipStreamNonBlocking, 0));
    OK(hipEventCreate(&begin));
    OK(hipEventCreate(&end));
    int *x, host[64], called = 0;
    OK(hipMalloc(&x, sizeof(host)));
    OK(hipMemsetAsync(x, 0, sizeof(host), one));
    OK(hipEventRecord(begin, one));
    increment<<<1, 64, 0, one>>>(x);
    OK(hipStreamAddCallback(one, count_up, &called, 0));
    OK(hipEventRecord(end, one));
    OK(hipStreamWaitEvent(two, end, 0));
    increment<<<1, 64, 0, two>>>(x);
    OK(hipStreamSynchronize(two));
    OK(hipEventSynchronize(end));
    float ms = -1;
    OK(hipEventElapsedTime(&ms, begin, end));
    EXPECT(ms > 0 && called == 1);
    OK(hipMemcpyAsync(host, x, sizeof(host), hipMemcpyDeviceToHost, two));
    OK(hipStreamSynchronize(two));
    EXPECT(host[0] == 2 && host[63] == 2);
    std::vector<std::thread> threads;
    for(int i = 0; i < 4; ++i)
        threads.emplace_back([] {
            int* own;
            int back[64];
            OK(hipMalloc(&own, sizeof(back)));
            OK(hipMemset(own, 0, sizeof(back)));
            for(int k = 0; k < 5; ++k)
                increment<<<1, 64>>>(own);
            OK(hipMemcpy(back, own, sizeof(back), hipMemcpyDeviceToHost));
            EXPECT(back[7] == 5);
            OK(hipFree(own));
        });
    for(std::thread& thread : threads)
        thread.join();
    OK(hipEventDestroy(begin));
    OK(hipStreamDestroy(one));
    EXPECT(hipStreamSynchronize(one) == hipErrorInvalidHandle);
}

void graphs()
{
    hipStream_t stream, other;
    hipGraph_t graph;
    hipGraphExec_t executable;
    hipEvent_t fork, join;
    int *x, host[64];
    OK(hipStreamCreate(&stream));
    OK(hipStreamCreate(&other));
    OK(hipEventCreate(&fork));
    OK(hipEventCreate(&join));
    OK(hipMalloc(&x, sizeof(host)));
    OK(hipMemset(x, 0, sizeof(host)));
    OK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    increment<<<1, 64, 0, stream>>>(x);
    OK(hipEventRecord(fork, stream));
    OK(hipStreamWaitEvent(other, fork, 0));
    increment<<<1, 64, 0, other>>>(x);
    OK(hipEventRecord(join, other));
    OK(hipStreamWaitEvent(stream, join, 0));
    OK(hipMemcpyAsync(host, x, sizeof(host), hipMemcpyDeviceToHost, stream));
    hipStreamCaptureStatus status;
    OK(hipStreamIsCapturing(stream, &status));
    EXPECT(status == hipStreamCaptureStatusActive);
    OK(hipStreamEndCapture(stream, &graph));
    OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    OK(hipGraphDestroy(graph));
    for(int i = 0; i < 3; ++i)
        OK(hipGraphLaunch(executable, stream));
    OK(hipStreamSynchronize(stream));
    EXPECT(host[0] == 6 && host[63] == 6);
    OK(hipGraphExecDestroy(executable));
}

void occupancy()
{
    int blocks = 0, grid = 0, block = 0, units = 0;
    OK(hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, 0));
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, increment, 256, 0));
    EXPECT(blocks == 8);
    OK(hipOccupancyMaxPotentialBlockSize(&grid, &block, increment, 0, 0));
    EXPECT(block == 1024 && grid == 2 * units);
    hipFuncAttributes attributes;
    OK(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(reverse)));
    EXPECT(attributes.maxThreadsPerBlock == 1024 && attributes.numRegs > 0 && attributes.sharedSizeBytes == 0);
    OK(hipFuncSetAttribute(reinterpret_cast<const void*>(reverse), hipFuncAttributeMaxDynamicSharedMemorySize, 65536));
    int *x, host[128];
    OK(hipMalloc(&x, sizeof(host)));
    for(int i = 0; i < 128; ++i)
        host[i] = i;
    OK(hipMemcpy(x, host, sizeof(host), hipMemcpyHostToDevice));
    void* arguments[] = {&x};
    OK(hipLaunchCooperativeKernel(reinterpret_cast<const void*>(reverse), dim3(1), dim3(128), arguments, sizeof(host), nullptr));
    OK(hipMemcpy(host, x, sizeof(host), hipMemcpyDeviceToHost));
    EXPECT(host[0] == 127 && host[127] == 0);
    EXPECT(hipLaunchCooperativeKernel(reinterpret_cast<const void*>(reverse), dim3(1 << 20), dim3(128), arguments, 512,
                                      nullptr) == hipErrorCooperativeLaunchTooLarge);
}

void grid_barrier()
{
    int n = 40 * 128, cooperative = 0, *x, *y;
    OK(hipDeviceGetAttribute(&cooperative, hipDeviceAttributeCooperativeLaunch, 0));
    EXPECT(cooperative == 1);
    std::vector<int> host(n);
    OK(hipMalloc(&x, 4 * n));
    OK(hipMalloc(&y, 4 * n));
    void* arguments[] = {&x, &y, &n};
    OK(hipLaunchCooperativeKernel(reinterpret_cast<const void*>(reverse_all), dim3(40), dim3(128), arguments, 0, nullptr));
    OK(hipMemcpy(host.data(), x, 4 * n, hipMemcpyDeviceToHost));
    for(int i = 0; i < n; ++i)
        EXPECT(host[i] == n - 1);
}

void devices()
{
    int count = 0, device = -1, major = 0, minor = 0, can = 1;
    char name[100];
    size_t bytes = 0;
    OK(hipInit(0));
    OK(hipGetDeviceCount(&count));
    EXPECT(count == 1);
    OK(hipDeviceGet(&device, 0));
    OK(hipDeviceGetName(name, sizeof(name), device));
    OK(hipDeviceTotalMem(&bytes, device));
    OK(hipDeviceComputeCapability(&major, &minor, device));
    OK(hipDeviceCanAccessPeer(&can, 0, 0));
    EXPECT(std::strstr(name, "emulated") != nullptr && bytes > 0 && major == 9 && minor == 4 && can == 0);
    EXPECT(hipSetDevice(1) == hipErrorInvalidDevice && hipGetLastError() == hipErrorInvalidDevice);
    OK(hipDeviceSetCacheConfig(hipFuncCachePreferL1));
}

void missing()
{
    hipArray* array = nullptr;
    EXPECT(hipFreeArray(array) == hipErrorNotSupported);
    EXPECT(hipFreeArray(array) == hipErrorNotSupported);
    EXPECT(hipGetLastError() == hipErrorNotSupported);
}

void print()
{
    std::printf("before\n");
    say<<<2, 64>>>(3);
    OK(hipDeviceSynchronize());
    std::printf("after\n");
}

void assertion()
{
    int* x;
    OK(hipMalloc(&x, 256));
    check<<<1, 64>>>(x, 60);
    EXPECT(hipDeviceSynchronize() == hipErrorLaunchFailure);
    EXPECT(hipMemset(x, 0, 256) == hipSuccess);
    check<<<1, 64>>>(x, 64); // nothing runs after a fault
    EXPECT(hipGetLastError() == hipErrorLaunchFailure);
    OK(hipDeviceReset());
    check<<<1, 64>>>(x, 64);
    OK(hipDeviceSynchronize());
}

int main(int count, char** words)
{
    const struct
    {
        const char* name;
        void (*run)();
    } parts[] = {{"devices", devices}, {"symbols", symbols},     {"memory", memory},   {"streams", streams},
                 {"graphs", graphs},   {"occupancy", occupancy}, {"missing", missing}, {"print", print},
                 {"assertion", assertion}, {"grid_barrier", grid_barrier}};
    for(int i = 1; i < count; ++i)
        for(const auto& part : parts)
            if(std::strcmp(words[i], part.name) == 0)
            {
                part.run();
                std::printf("%s: right\n", part.name);
            }
    return 7; // a program's own exit code
}
