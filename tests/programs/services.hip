// Services of HIP beyond launches and plain copies, each named on the command line. A part that is right prints its name.
#include <hip/hip_runtime.h>
#include <hip/hiprtc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define EXPECT(truth)                                                                                     \
    if(!(truth))                                                                                          \
    {                                                                                                     \
        std::printf("line %d is wrong: %s (last error: %s)\n", __LINE__, #truth, hipGetErrorName(hipGetLastError())); \
        std::exit(1);                                                                                     \
    }
#define OK(call) EXPECT((call) == hipSuccess)

__global__ void make_lists(int** lists, int n)
{
    int* const own = static_cast<int*>(malloc(n * sizeof(int)));
    for(int i = 0; own != nullptr && i < n; ++i)
        own[i] = i + threadIdx.x;
    lists[threadIdx.x] = own;
}

__global__ void sum_lists(int** lists, long long* sums, int n)
{
    long long sum = 0;
    for(int i = 0; i < n; ++i)
        sum += lists[threadIdx.x][i];
    sums[threadIdx.x] = sum;
    free(lists[threadIdx.x]);
}

__global__ void add(int* x, int value) { x[threadIdx.x] += value; }
__global__ void twice(int* x) { x[threadIdx.x] *= 2; }

// Small blocks come from slabs of the device library, large ones from the host.
void kernel_malloc()
{
    constexpr int threads = 70;
    int** lists;
    long long* sums;
    std::vector<long long> found(threads);
    OK(hipMalloc(&lists, threads * sizeof(int*)));
    OK(hipMalloc(&sums, threads * sizeof(long long)));
    size_t limit = 0;
    OK(hipDeviceGetLimit(&limit, hipLimitMallocHeapSize));
    EXPECT(limit == 512 << 20);
    for(const int n : {5, 1500, 5})
    {
        make_lists<<<1, threads>>>(lists, n);
        sum_lists<<<1, threads>>>(lists, sums, n);
        OK(hipMemcpy(found.data(), sums, threads * sizeof(long long), hipMemcpyDeviceToHost));
        for(int i = 0; i < threads; ++i)
            EXPECT(found[i] == (long long)n * (n - 1) / 2 + (long long)n * i);
    }
    int* none = reinterpret_cast<int*>(1);
    make_lists<<<1, 1>>>(lists, 1 << 28); // more than the heap has
    OK(hipMemcpy(&none, lists, sizeof(none), hipMemcpyDeviceToHost));
    EXPECT(none == nullptr);
}

void volumes()
{
    const hipExtent extent = make_hipExtent(40, 3, 2);
    hipPitchedPtr device;
    OK(hipMalloc3D(&device, extent));
    OK(hipMemset3D(device, 7, extent));
    std::vector<char> host(40 * 3 * 2, 1), back(host.size(), 0);
    for(size_t i = 0; i < host.size(); ++i)
        host[i] = char(i);
    hipMemcpy3DParms copy = {};
    copy.srcPtr           = make_hipPitchedPtr(host.data(), 40, 40, 3);
    copy.dstPtr           = device;
    copy.srcPos           = make_hipPos(4, 1, 0);
    copy.dstPos           = make_hipPos(4, 1, 0);
    copy.extent           = make_hipExtent(36, 2, 2);
    copy.kind             = hipMemcpyHostToDevice;
    OK(hipMemcpy3D(&copy));
    hipMemcpy3DParms all = {};
    all.srcPtr           = device;
    all.dstPtr           = make_hipPitchedPtr(back.data(), 40, 40, 3);
    all.extent           = extent;
    all.kind             = hipMemcpyDeviceToHost;
    OK(hipMemcpy3DAsync(&all, nullptr));
    for(int z = 0; z < 2; ++z)
        for(int y = 0; y < 3; ++y)
            for(int x = 0; x < 40; ++x)
            {
                const size_t at = (z * 3 + y) * 40 + x;
                EXPECT(back[at] == (x >= 4 && y >= 1 ? host[at] : 7));
            }
    OK(hipMemcpyPeer(device.ptr, 0, static_cast<char*>(device.ptr) + 128, 0, 16));
    OK(hipFree(device.ptr));
    int can = 1;
    OK(hipDeviceCanAccessPeer(&can, 0, 0));
    EXPECT(can == 0);
}

void pools()
{
    hipMemPool_t standard, own, current;
    OK(hipDeviceGetDefaultMemPool(&standard, 0));
    uint64_t threshold = UINT64_MAX, read = 0, used = 0;
    OK(hipMemPoolSetAttribute(standard, hipMemPoolAttrReleaseThreshold, &threshold));
    OK(hipMemPoolGetAttribute(standard, hipMemPoolAttrReleaseThreshold, &read));
    EXPECT(read == threshold);
    hipMemPoolProps properties = {};
    properties.allocType       = hipMemAllocationTypePinned;
    properties.location        = {hipMemLocationTypeDevice, 0};
    OK(hipMemPoolCreate(&own, &properties));
    int *a, *b;
    OK(hipMallocFromPoolAsync(reinterpret_cast<void**>(&a), 1000, own, nullptr));
    OK(hipDeviceSetMemPool(0, own));
    OK(hipDeviceGetMemPool(&current, 0));
    EXPECT(current == own);
    OK(hipMallocAsync(reinterpret_cast<void**>(&b), 500, nullptr));
    OK(hipMemPoolGetAttribute(own, hipMemPoolAttrUsedMemCurrent, &used));
    EXPECT(used == 1500);
    OK(hipFreeAsync(a, nullptr));
    OK(hipFreeAsync(b, nullptr));
    OK(hipMemPoolGetAttribute(own, hipMemPoolAttrUsedMemCurrent, &used));
    OK(hipMemPoolGetAttribute(own, hipMemPoolAttrUsedMemHigh, &read));
    EXPECT(used == 0 && read == 1500);
    OK(hipMemPoolTrimTo(own, 0));
    OK(hipMemPoolDestroy(own));
    EXPECT(hipMemPoolTrimTo(own, 0) == hipErrorInvalidValue);
}

void virtual_memory()
{
    hipMemAllocationProp properties = {};
    properties.type                 = hipMemAllocationTypePinned;
    properties.location             = {hipMemLocationTypeDevice, 0};
    size_t granule                  = 0;
    OK(hipMemGetAllocationGranularity(&granule, &properties, hipMemAllocationGranularityMinimum));
    const size_t bytes = 2 * granule;
    void* address      = nullptr;
    hipMemGenericAllocationHandle_t first, second;
    OK(hipMemAddressReserve(&address, bytes, 0, nullptr, 0));
    OK(hipMemCreate(&first, granule, &properties, 0));
    OK(hipMemCreate(&second, granule, &properties, 0));
    OK(hipMemMap(address, granule, 0, first, 0));
    OK(hipMemMap(static_cast<char*>(address) + granule, granule, 0, second, 0));
    hipMemAccessDesc access = {};
    access.location         = properties.location;
    access.flags            = hipMemAccessFlagsProtReadWrite;
    OK(hipMemSetAccess(address, bytes, &access, 1));
    OK(hipMemset(address, 0, bytes));
    int* const x = reinterpret_cast<int*>(static_cast<char*>(address) + granule) - 32;
    add<<<1, 64>>>(x, 3);
    std::vector<int> back(64);
    OK(hipMemcpy(back.data(), x, 256, hipMemcpyDeviceToHost));
    EXPECT(back[0] == 3 && back[63] == 3);
    OK(hipMemUnmap(address, granule));
    OK(hipMemUnmap(static_cast<char*>(address) + granule, granule));
    OK(hipMemRelease(first));
    OK(hipMemRelease(second));
    OK(hipMemAddressFree(address, bytes));
}

void graph_nodes()
{
    int* d;
    std::vector<int> host(64, 5), back(64, 0);
    OK(hipMalloc(&d, 256));
    hipGraph_t graph;
    hipGraphExec_t executable;
    hipGraphNode_t upload, plus, times, download, note;
    OK(hipGraphCreate(&graph, 0));
    // The nodes are added in another order than that of their dependencies.
    void* no_arguments[]       = {&d};
    hipKernelNodeParams kernel = {};
    kernel.func                = reinterpret_cast<void*>(twice);
    kernel.gridDim             = dim3(1);
    kernel.blockDim            = dim3(64);
    kernel.kernelParams        = no_arguments;
    OK(hipGraphAddKernelNode(&times, graph, nullptr, 0, &kernel));
    int value         = 4;
    void* arguments[] = {&d, &value};
    kernel.func         = reinterpret_cast<void*>(add);
    kernel.kernelParams = arguments;
    OK(hipGraphAddKernelNode(&plus, graph, nullptr, 0, &kernel));
    value = 1000; // arguments are copied when the node is made
    OK(hipGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, d, host.data(), 256, hipMemcpyHostToDevice));
    OK(hipGraphAddMemcpyNode1D(&download, graph, &times, 1, back.data(), d, 256, hipMemcpyDeviceToHost));
    int calls               = 0;
    hipHostNodeParams count = {[](void* data) { ++*static_cast<int*>(data); }, &calls};
    OK(hipGraphAddHostNode(&note, graph, &download, 1, &count));
    const hipGraphNode_t from[] = {upload, plus}, to[] = {plus, times};
    OK(hipGraphAddDependencies(graph, from, to, 2));
    size_t nodes = 0;
    OK(hipGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 5);
    OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    EXPECT(back[0] == 0);
    OK(hipGraphLaunch(executable, nullptr));
    OK(hipGraphLaunch(executable, nullptr));
    EXPECT(back[0] == 18 && back[63] == 18 && calls == 2);
    OK(hipGraphExecDestroy(executable));
    OK(hipGraphAddDependencies(graph, &note, &upload, 1)); // a circle
    EXPECT(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0) == hipErrorInvalidValue);
    OK(hipGraphDestroy(graph));
}

const char source[] = R"(
#include "factor.h"
template <typename T>
__global__ void scale(T* x, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        x[i] *= FACTOR;
}
)";

std::string read_log(hiprtcProgram program)
{
    size_t bytes = 0;
    EXPECT(hiprtcGetProgramLogSize(program, &bytes) == HIPRTC_SUCCESS);
    std::string log(bytes, '\0');
    EXPECT(hiprtcGetProgramLog(program, log.data()) == HIPRTC_SUCCESS);
    return log;
}

void run_time_compiler()
{
    const char *headers[] = {"#define FACTOR 3\n"}, *names[] = {"factor.h"}, *options[] = {"-O2"};
    hiprtcProgram program, wrong;
    EXPECT(hiprtcCreateProgram(&program, source, "scale.hip", 1, headers, names) == HIPRTC_SUCCESS);
    EXPECT(hiprtcAddNameExpression(program, "scale<float>") == HIPRTC_SUCCESS);
    const char* name = nullptr;
    EXPECT(hiprtcGetLoweredName(program, "scale<float>", &name) == HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION);
    const hiprtcResult result = hiprtcCompileProgram(program, 1, options);
    if(result != HIPRTC_SUCCESS)
        std::printf("%s", read_log(program).c_str());
    EXPECT(result == HIPRTC_SUCCESS);
    EXPECT(hiprtcGetLoweredName(program, "scale<float>", &name) == HIPRTC_SUCCESS);
    size_t bytes = 0;
    EXPECT(hiprtcGetCodeSize(program, &bytes) == HIPRTC_SUCCESS);
    std::vector<char> code(bytes);
    EXPECT(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS);
    hipModule_t module;
    hipFunction_t function;
    OK(hipModuleLoadData(&module, code.data()));
    OK(hipModuleGetFunction(&function, module, name));
    EXPECT(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
    int n = 100;
    float* d;
    std::vector<float> x(n, 2);
    OK(hipMalloc(&d, 4 * n));
    OK(hipMemcpy(d, x.data(), 4 * n, hipMemcpyHostToDevice));
    void* arguments[] = {&d, &n};
    OK(hipModuleLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    OK(hipMemcpy(x.data(), d, 4 * n, hipMemcpyDeviceToHost));
    EXPECT(x[0] == 6 && x[99] == 6);
    EXPECT(hiprtcCreateProgram(&wrong, "__global__ void k() { nonsense; }", "wrong.hip", 0, nullptr, nullptr) ==
           HIPRTC_SUCCESS);
    EXPECT(hiprtcCompileProgram(wrong, 0, nullptr) == HIPRTC_ERROR_COMPILATION);
    EXPECT(read_log(wrong).find("wrong.hip:1:23: error: use of undeclared identifier 'nonsense'") == 0);
    const char* other[] = {"--offload-arch=gfx906"};
    EXPECT(hiprtcCompileProgram(wrong, 1, other) == HIPRTC_ERROR_COMPILATION);
    EXPECT(read_log(wrong).find("hiprtc shall compile for gfx906, but the emulated GPU is gfx942") == 0);
}

int main(int count, char** words)
{
    for(int at = 1; at < count; ++at)
    {
        const std::string part = words[at];
        if(part == "kernel_malloc")
            kernel_malloc();
        else if(part == "volumes")
            volumes();
        else if(part == "pools")
            pools();
        else if(part == "virtual_memory")
            virtual_memory();
        else if(part == "graph_nodes")
            graph_nodes();
        else if(part == "run_time_compiler")
            run_time_compiler();
        else
            return 2;
        std::printf("%s: right\n", words[at]);
    }
    return 7;
}
