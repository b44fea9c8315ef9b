// Kernels that host code registers or loads, and their launches.
#include "kernels.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

using namespace stand_in;

namespace {

struct Configuration
{
    dim3 grid, block;
    size_t dynamic_lds;
    hipStream_t stream;
};

thread_local std::vector<Configuration> configurations;

bool is_dry(int device) { return (dry >> device & 1) != 0; }

hipError_t launched(const LaunchRequest& request)
{
    if(Script* const script = script_of(request.device))
        script->launched();
    if(is_dry(request.device))
        return hipSuccess;
    if(const hipError_t status = earlier_fault(request.device); status != hipSuccess)
        return status;
    if(const hipError_t status = bind_managed(request.device, Image{request.image, request.data}); status != hipSuccess)
        return status;
    return note_fault(request.device, ask(&Callbacks::launch, &request));
}

} // namespace

// The work of a launch that is done when a graph is launched, with a copy of its arguments.
hipError_t stand_in::make_launch(const LaunchRequest& request, Work* work)
{
    uint64_t bytes    = 0;
    hipError_t status = ask(&Callbacks::pack, &request, static_cast<void*>(nullptr), uint64_t(0), &bytes);
    auto arguments    = std::make_shared<std::vector<char>>(std::max<uint64_t>(bytes, 1));
    if(status == hipSuccess)
        status = ask(&Callbacks::pack, &request, static_cast<void*>(arguments->data()), bytes, &bytes);
    if(status != hipSuccess)
        return status;
    *work = [request, arguments, bytes, kernel = std::string(request.kernel)] {
        LaunchRequest again = request;
        again.kernel        = kernel.c_str();
        again.arguments     = nullptr;
        again.packed        = arguments->data();
        again.packed_bytes  = bytes;
        return launched(again);
    };
    return hipSuccess;
}

namespace {

// Keeps a launch of a captured stream. Only programs launch graphs.
hipError_t keep_launch(const LaunchRequest& request)
{
    Work work;
    if(!in_program)
        return hipSuccess;
    const hipError_t status = make_launch(request, &work);
    if(status == hipSuccess)
        capture.work.push_back(std::move(work));
    return status;
}

hipError_t launch_in(const char* call, hipStream_t stream, const LaunchRequest& request)
{
    if(hipError_t status; recorded(call, stream, &status))
        return status == hipSuccess ? keep_launch(request) : status;
    return launched(request);
}

hipError_t check_cooperative(const LaunchRequest& request)
{
    int blocks          = 0;
    LaunchRequest asked = request;
    asked.block[0]      = request.block[0] * request.block[1] * request.block[2];
    if(const hipError_t status = ask(&Callbacks::occupancy, &asked, &blocks); status != hipSuccess)
        return status;
    const uint64_t all = uint64_t(request.grid[0]) * request.grid[1] * request.grid[2];
    const bool fits    = all <= uint64_t(blocks) * devices[request.device].units;
    return fits ? hipSuccess : said(hipErrorCooperativeLaunchTooLarge);
}

hipError_t launch_stub(const char* call, const void* stub, dim3 grid, dim3 block, void** arguments, size_t dynamic_lds,
                       hipStream_t stream, bool cooperative = false)
{
    const int device = device_of(stream);
    if(device < 0)
        return said(hipErrorInvalidHandle);
    Function function;
    if(!find_stub(stub, &function))
        return said(hipErrorInvalidDeviceFunction);
    LaunchRequest request = request_of(device, function, grid, block, dynamic_lds);
    request.arguments     = arguments;
    request.cooperative   = cooperative;
    if(cooperative)
        if(const hipError_t status = check_cooperative(request); status != hipSuccess)
            return status;
    return launch_in(call, stream, request);
}

} // namespace

// What the compiler makes host code call.

TW_EXPORT void** __hipRegisterFatBinary(const void* data)
{
    struct Wrapper
    {
        uint32_t magic, version;
        const void* binary;
        const void* unused;
    };
    auto* const image = new Image{next_image++, static_cast<const Wrapper*>(data)->binary};
    return reinterpret_cast<void**>(image);
}

TW_EXPORT void __hipUnregisterFatBinary(void** handle)
{
    auto* const image = reinterpret_cast<Image*>(handle);
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        auto& stubs = state().stubs;
        for(auto at = stubs.begin(); at != stubs.end();)
            at = at->second.image.number == image->number ? stubs.erase(at) : std::next(at);
        auto& variables = state().variables;
        for(auto at = variables.begin(); at != variables.end();)
            at = at->second.image.number == image->number ? variables.erase(at) : std::next(at);
    }
    delete image;
}

TW_EXPORT void __hipRegisterFunction(void** handle, const void* stub, char*, const char* kernel, unsigned, void*, void*,
                                     dim3*, dim3*, int*)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    state().stubs[stub] = Function{*reinterpret_cast<Image*>(handle), kernel};
}

TW_EXPORT hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_lds, hipStream_t stream)
{
    configurations.push_back({grid, block, dynamic_lds, stream});
    return hipSuccess;
}

TW_EXPORT hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* dynamic_lds, hipStream_t* stream)
{
    if(configurations.empty())
        return said(hipErrorMissingConfiguration);
    const Configuration top = configurations.back();
    configurations.pop_back();
    *grid        = top.grid;
    *block       = top.block;
    *dynamic_lds = top.dynamic_lds;
    *stream      = top.stream;
    return hipSuccess;
}

TW_EXPORT hipError_t hipLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t dynamic_lds,
                                     hipStream_t stream)
{
    return launch_stub("hipLaunchKernel", stub, grid, block, arguments, dynamic_lds, stream);
}

TW_EXPORT hipError_t hipExtLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t dynamic_lds,
                                        hipStream_t stream, hipEvent_t start, hipEvent_t stop, int)
{
    hipError_t status = start != nullptr ? hipEventRecord(start, stream) : hipSuccess;
    if(status == hipSuccess)
        status = launch_stub("hipExtLaunchKernel", stub, grid, block, arguments, dynamic_lds, stream);
    return status == hipSuccess && stop != nullptr ? hipEventRecord(stop, stream) : status;
}

TW_EXPORT hipError_t hipLaunchCooperativeKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                                                unsigned dynamic_lds, hipStream_t stream)
{
    return launch_stub("hipLaunchCooperativeKernel", stub, grid, block, arguments, dynamic_lds, stream, true);
}

TW_EXPORT hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                                           hipStream_t stream, void** arguments, void** extra)
{
    const int device = device_of(stream);
    Function function;
    if(device < 0 || !find_function(handle, &function))
        return said(hipErrorInvalidHandle);
    LaunchRequest request = request_of(device, function, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z),
                                       dynamic_lds);
    request.arguments     = arguments;
    for(void** word = extra; word != nullptr && *word != HIP_LAUNCH_PARAM_END; word += 2)
    {
        if(*word == HIP_LAUNCH_PARAM_BUFFER_POINTER)
            request.packed = word[1];
        else if(*word == HIP_LAUNCH_PARAM_BUFFER_SIZE)
            request.packed_bytes = *static_cast<const size_t*>(word[1]);
        else
            return said(hipErrorInvalidValue);
    }
    if((request.packed != nullptr) == (arguments != nullptr))
        return said(hipErrorInvalidValue);
    return launch_in("hipModuleLaunchKernel", stream, request);
}

TW_EXPORT hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y,
                                                      unsigned grid_z, unsigned block_x, unsigned block_y,
                                                      unsigned block_z, unsigned dynamic_lds, hipStream_t stream,
                                                      void** arguments)
{
    const int device = device_of(stream);
    Function function;
    if(device < 0 || !find_function(handle, &function))
        return said(hipErrorInvalidHandle);
    LaunchRequest request = request_of(device, function, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z),
                                       dynamic_lds);
    request.arguments     = arguments;
    request.cooperative   = 1;
    const hipError_t status = check_cooperative(request);
    return status == hipSuccess ? launch_in("hipModuleLaunchCooperativeKernel", stream, request) : status;
}
