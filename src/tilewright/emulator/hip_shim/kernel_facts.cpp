// What kernels need, and how many of their work-groups are resident.
#include "kernels.hpp"

#include <algorithm>

using namespace stand_in;

namespace {

hipError_t count_blocks(int* blocks, const Function& function, int threads, size_t dynamic_lds)
{
    const LaunchRequest request = request_of(current_device, function, dim3(1), dim3(threads), dynamic_lds);
    return ask(&Callbacks::occupancy, &request, blocks);
}

hipError_t facts_of(const Function& function, KernelFacts* facts)
{
    const LaunchRequest request = request_of(current_device, function, dim3(1), dim3(1), 0);
    return ask(&Callbacks::facts, &request, facts);
}

// The largest work-group with which a unit has the most threads, and the grid that fills the device.
hipError_t find_block_size(int* grid, int* block, const Function& function, size_t dynamic_lds, int limit)
{
    if(grid == nullptr || block == nullptr)
        return said(hipErrorInvalidValue);
    KernelFacts facts{};
    if(const hipError_t status = facts_of(function, &facts); status != hipSuccess)
        return status;
    const int wave = devices[current_device].wave_size;
    const int most = limit > 0 ? std::min(limit, facts.max_threads) : facts.max_threads;
    int best = 0;
    for(int threads = std::max(most / wave, 1) * wave; threads > 0; threads -= wave)
    {
        int blocks = 0;
        if(const hipError_t status = count_blocks(&blocks, function, std::min(threads, most), dynamic_lds);
           status != hipSuccess)
            return status;
        if(blocks * threads > best)
        {
            best   = blocks * threads;
            *block = std::min(threads, most);
            *grid  = blocks * devices[current_device].units;
        }
    }
    return best > 0 ? hipSuccess : said(hipErrorInvalidValue);
}

} // namespace

TW_EXPORT hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub, int threads,
                                                                  size_t dynamic_lds)
{
    Function function;
    if(blocks == nullptr || threads < 1)
        return said(hipErrorInvalidValue);
    if(!find_stub(stub, &function))
        return said(hipErrorInvalidDeviceFunction);
    return count_blocks(blocks, function, threads, dynamic_lds);
}

TW_EXPORT hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub, int threads,
                                                                           size_t dynamic_lds, unsigned)
{
    return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, stub, threads, dynamic_lds);
}

TW_EXPORT hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t handle, int threads,
                                                                        size_t dynamic_lds)
{
    Function function;
    if(blocks == nullptr || threads < 1)
        return said(hipErrorInvalidValue);
    if(!find_function(handle, &function))
        return said(hipErrorInvalidHandle);
    return count_blocks(blocks, function, threads, dynamic_lds);
}

TW_EXPORT hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, hipFunction_t handle,
                                                                                 int threads, size_t dynamic_lds,
                                                                                 unsigned)
{
    return hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks, handle, threads, dynamic_lds);
}

TW_EXPORT hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* stub, size_t dynamic_lds,
                                                       int limit)
{
    Function function;
    if(!find_stub(stub, &function))
        return said(hipErrorInvalidDeviceFunction);
    return find_block_size(grid, block, function, dynamic_lds, limit);
}

TW_EXPORT hipError_t hipModuleOccupancyMaxPotentialBlockSize(int* grid, int* block, hipFunction_t handle,
                                                             size_t dynamic_lds, int limit)
{
    Function function;
    if(!find_function(handle, &function))
        return said(hipErrorInvalidHandle);
    return find_block_size(grid, block, function, dynamic_lds, limit);
}

TW_EXPORT hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* stub)
{
    Function function;
    KernelFacts facts{};
    if(attributes == nullptr)
        return said(hipErrorInvalidValue);
    if(!find_stub(stub, &function))
        return said(hipErrorInvalidDeviceFunction);
    if(const hipError_t status = facts_of(function, &facts); status != hipSuccess)
        return status;
    *attributes                           = hipFuncAttributes{};
    attributes->localSizeBytes            = facts.private_bytes;
    attributes->sharedSizeBytes           = facts.lds_bytes;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(devices[current_device].lds_bytes - facts.lds_bytes);
    attributes->maxThreadsPerBlock        = facts.max_threads;
    attributes->numRegs                   = facts.registers;
    return hipSuccess;
}

TW_EXPORT hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute attribute, hipFunction_t handle)
{
    Function function;
    KernelFacts facts{};
    if(value == nullptr)
        return said(hipErrorInvalidValue);
    if(!find_function(handle, &function))
        return said(hipErrorInvalidHandle);
    if(const hipError_t status = facts_of(function, &facts); status != hipSuccess)
        return status;
    switch(attribute)
    {
    case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(facts.lds_bytes); break;
    case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = static_cast<int>(facts.private_bytes); break;
    case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = facts.max_threads; break;
    case HIP_FUNC_ATTRIBUTE_NUM_REGS: *value = facts.registers; break;
    case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = 0; break;
    default: return said(hipErrorNotSupported);
    }
    return hipSuccess;
}

// LDS is not a part of a cache here, and its size is checked at the launch.
TW_EXPORT hipError_t hipFuncSetAttribute(const void* stub, hipFuncAttribute, int)
{
    Function function;
    return said(find_stub(stub, &function) ? hipSuccess : hipErrorInvalidDeviceFunction);
}

TW_EXPORT hipError_t hipFuncSetCacheConfig(const void* stub, hipFuncCache_t)
{
    return hipFuncSetAttribute(stub, hipFuncAttributePreferredSharedMemoryCarveout, 0);
}

TW_EXPORT hipError_t hipFuncSetSharedMemConfig(const void* stub, hipSharedMemConfig)
{
    return hipFuncSetAttribute(stub, hipFuncAttributePreferredSharedMemoryCarveout, 0);
}
