// Kernels that host code registers or loads, and their launches.
#include "state.hpp"

#include <iterator>

using namespace stand_in;

namespace {

struct Configuration
{
    dim3 grid, block;
    size_t dynamic_lds;
    hipStream_t stream;
};

thread_local std::vector<Configuration> configurations;
std::atomic<uint64_t> next_number{1};

bool find_stub(const void* stub, Function* function)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto found = state().stubs.find(stub);
    if(found == state().stubs.end())
        return false;
    *function = found->second;
    return true;
}

LaunchRequest request_of(int device, const Function& function, dim3 grid, dim3 block, size_t dynamic_lds)
{
    LaunchRequest request{};
    request.device      = device;
    request.image       = function.image.number;
    request.data        = function.image.data;
    request.kernel      = function.kernel.c_str();
    request.grid[0]     = grid.x;
    request.grid[1]     = grid.y;
    request.grid[2]     = grid.z;
    request.block[0]    = block.x;
    request.block[1]    = block.y;
    request.block[2]    = block.z;
    request.dynamic_lds = dynamic_lds;
    return request;
}

bool is_dry(int device) { return (dry >> device & 1) != 0; }

hipError_t launched(const LaunchRequest& request)
{
    if(Script* const script = script_of(request.device))
        script->launched();
    return is_dry(request.device) ? hipSuccess : ask(callbacks.launch, &request);
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
    auto* const image = new Image{next_number++, static_cast<const Wrapper*>(data)->binary};
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
    const int device = device_of(stream);
    if(device < 0)
        return said(hipErrorInvalidHandle);
    Function function;
    if(!find_stub(stub, &function))
        return said(hipErrorInvalidDeviceFunction);
    if(hipError_t status; recorded("hipLaunchKernel", stream, &status))
        return status;
    LaunchRequest request = request_of(device, function, grid, block, dynamic_lds);
    request.arguments     = arguments;
    return launched(request);
}

TW_EXPORT hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                                           hipStream_t stream, void** arguments, void** extra)
{
    const int device = device_of(stream);
    Function function;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        if(device < 0 || state().functions.count(handle) == 0)
            return said(hipErrorInvalidHandle);
        function = *reinterpret_cast<const Function*>(handle);
    }
    if(hipError_t status; recorded("hipModuleLaunchKernel", stream, &status))
        return status;
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
    return launched(request);
}

TW_EXPORT hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub, int threads,
                                                                  size_t dynamic_lds)
{
    Function function;
    if(blocks == nullptr || threads < 1)
        return said(hipErrorInvalidValue);
    if(!find_stub(stub, &function))
        return said(hipErrorInvalidDeviceFunction);
    const LaunchRequest request = request_of(current_device, function, dim3(1), dim3(threads), dynamic_lds);
    return ask(callbacks.occupancy, &request, blocks);
}

TW_EXPORT hipError_t hipModuleLoadData(hipModule_t* module, const void* data)
{
    if(module == nullptr || data == nullptr)
        return said(hipErrorInvalidValue);
    const Image image{next_number++, data};
    const hipError_t status = ask(callbacks.load, current_device, image.number, data);
    if(status != hipSuccess)
        return status;
    void* const made = new char;
    const std::lock_guard<std::mutex> guard(state().lock);
    state().modules.emplace(made, Module{current_device, image, {}});
    *module = static_cast<hipModule_t>(made);
    return hipSuccess;
}

TW_EXPORT hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* kernel)
{
    if(function == nullptr || kernel == nullptr)
        return said(hipErrorInvalidValue);
    Module* found = nullptr;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto at = state().modules.find(module);
        if(at == state().modules.end())
            return said(hipErrorInvalidHandle);
        found = &at->second; // stays where it is until the module is unloaded
    }
    const hipError_t status = ask(callbacks.find, found->device, found->image.number, kernel);
    if(status != hipSuccess)
        return status;
    const std::lock_guard<std::mutex> guard(state().lock);
    found->functions.push_back(Function{found->image, kernel});
    *function = reinterpret_cast<hipFunction_t>(&found->functions.back());
    state().functions.insert(*function);
    return hipSuccess;
}

TW_EXPORT hipError_t hipModuleUnload(hipModule_t module)
{
    uint64_t number = 0;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto at = state().modules.find(module);
        if(at == state().modules.end())
            return said(hipErrorInvalidHandle);
        number = at->second.image.number;
        for(const Function& function : at->second.functions)
            state().functions.erase(&function);
        state().modules.erase(at);
    }
    delete reinterpret_cast<char*>(module);
    return ask(callbacks.unload, number);
}
