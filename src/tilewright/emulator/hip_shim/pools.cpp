// Memory pools. All of them share the device's memory, so a pool is its settings and its count of bytes in use.
#include "memory.hpp"

#include <algorithm>

using namespace stand_in;

namespace {

struct Pool
{
    int device;
    uint64_t threshold = 0;
    uint64_t used = 0, most_used = 0;
    int reuse[3] = {1, 1, 1}; // by events, if it happens so, by new dependencies
};

struct Pools
{
    std::unordered_map<int, Pool*> standard, current; // by device
    std::unordered_set<Pool*> known;
    std::unordered_map<void*, std::pair<Pool*, size_t>> blocks;
};

// Under the lock of `state`.
Pools& pools()
{
    static Pools* const made = new Pools;
    return *made;
}

Pool* standard_pool(int device)
{
    Pool*& pool = pools().standard[device];
    if(pool == nullptr)
    {
        pool = new Pool{device};
        pools().known.insert(pool);
    }
    return pool;
}

Pool* current_pool(int device)
{
    const auto found = pools().current.find(device);
    return found == pools().current.end() ? standard_pool(device) : found->second;
}

Pool* pool_of(hipMemPool_t handle)
{
    auto* const pool = reinterpret_cast<Pool*>(handle);
    return pools().known.count(pool) != 0 ? pool : nullptr;
}

hipError_t allocate_from(Pool* pool, void** address, size_t bytes, hipStream_t stream)
{
    if(const hipError_t status = known(stream); status != hipSuccess)
        return status;
    const hipError_t status = hipMalloc(address, bytes);
    if(status != hipSuccess || *address == nullptr)
        return status;
    const std::lock_guard<std::mutex> guard(state().lock);
    pools().blocks[*address] = {pool, bytes};
    pool->used += bytes;
    pool->most_used = std::max(pool->most_used, pool->used);
    return hipSuccess;
}

} // namespace

TW_EXPORT hipError_t hipMallocAsync(void** address, size_t bytes, hipStream_t stream)
{
    Pool* pool = nullptr;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        pool = current_pool(current_device);
    }
    return allocate_from(pool, address, bytes, stream);
}

TW_EXPORT hipError_t hipMallocFromPoolAsync(void** address, size_t bytes, hipMemPool_t handle, hipStream_t stream)
{
    Pool* pool = nullptr;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        pool = pool_of(handle);
    }
    return pool == nullptr ? said(hipErrorInvalidValue) : allocate_from(pool, address, bytes, stream);
}

TW_EXPORT hipError_t hipFreeAsync(void* address, hipStream_t stream)
{
    if(const hipError_t status = known(stream); status != hipSuccess)
        return status;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto block = pools().blocks.find(address);
        if(block != pools().blocks.end())
        {
            block->second.first->used -= block->second.second;
            pools().blocks.erase(block);
        }
    }
    return hipFree(address);
}

TW_EXPORT hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device)
{
    if(pool == nullptr || !is_device(device))
        return said(pool == nullptr ? hipErrorInvalidValue : hipErrorInvalidDevice);
    const std::lock_guard<std::mutex> guard(state().lock);
    *pool = reinterpret_cast<hipMemPool_t>(standard_pool(device));
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device)
{
    if(pool == nullptr || !is_device(device))
        return said(pool == nullptr ? hipErrorInvalidValue : hipErrorInvalidDevice);
    const std::lock_guard<std::mutex> guard(state().lock);
    *pool = reinterpret_cast<hipMemPool_t>(current_pool(device));
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceSetMemPool(int device, hipMemPool_t handle)
{
    if(!is_device(device))
        return said(hipErrorInvalidDevice);
    const std::lock_guard<std::mutex> guard(state().lock);
    Pool* const pool = pool_of(handle);
    if(pool == nullptr || pool->device != device)
        return said(hipErrorInvalidValue);
    pools().current[device] = pool;
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemPoolCreate(hipMemPool_t* handle, const hipMemPoolProps* properties)
{
    if(handle == nullptr || properties == nullptr || !is_device(properties->location.id))
        return said(hipErrorInvalidValue);
    const std::lock_guard<std::mutex> guard(state().lock);
    auto* const pool = new Pool{properties->location.id};
    pools().known.insert(pool);
    *handle = reinterpret_cast<hipMemPool_t>(pool);
    return hipSuccess;
}

// Its blocks stay allocated, as HIP says.
TW_EXPORT hipError_t hipMemPoolDestroy(hipMemPool_t handle)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    Pool* const pool = pool_of(handle);
    if(pool == nullptr || pool == standard_pool(pool->device))
        return said(hipErrorInvalidValue);
    pools().known.erase(pool);
    if(current_pool(pool->device) == pool)
        pools().current.erase(pool->device);
    return hipSuccess; // blocks still point to it
}

// No pool keeps memory that it does not use.
TW_EXPORT hipError_t hipMemPoolTrimTo(hipMemPool_t handle, size_t)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    return said(pool_of(handle) != nullptr ? hipSuccess : hipErrorInvalidValue);
}

TW_EXPORT hipError_t hipMemPoolSetAttribute(hipMemPool_t handle, hipMemPoolAttr attribute, void* value)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    Pool* const pool = pool_of(handle);
    if(pool == nullptr || value == nullptr)
        return said(hipErrorInvalidValue);
    switch(attribute)
    {
    case hipMemPoolReuseFollowEventDependencies:
    case hipMemPoolReuseAllowOpportunistic:
    case hipMemPoolReuseAllowInternalDependencies:
        pool->reuse[attribute - hipMemPoolReuseFollowEventDependencies] = *static_cast<const int*>(value);
        return hipSuccess;
    case hipMemPoolAttrReleaseThreshold: pool->threshold = *static_cast<const uint64_t*>(value); return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh: // only to the present value, and only with 0
        if(*static_cast<const uint64_t*>(value) != 0)
            return said(hipErrorInvalidValue);
        pool->most_used = pool->used;
        return hipSuccess;
    default: return said(hipErrorInvalidValue);
    }
}

TW_EXPORT hipError_t hipMemPoolGetAttribute(hipMemPool_t handle, hipMemPoolAttr attribute, void* value)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const Pool* const pool = pool_of(handle);
    if(pool == nullptr || value == nullptr)
        return said(hipErrorInvalidValue);
    switch(attribute)
    {
    case hipMemPoolReuseFollowEventDependencies:
    case hipMemPoolReuseAllowOpportunistic:
    case hipMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) = pool->reuse[attribute - hipMemPoolReuseFollowEventDependencies];
        return hipSuccess;
    case hipMemPoolAttrReleaseThreshold: *static_cast<uint64_t*>(value) = pool->threshold; return hipSuccess;
    case hipMemPoolAttrReservedMemCurrent:
    case hipMemPoolAttrUsedMemCurrent: *static_cast<uint64_t*>(value) = pool->used; return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh: *static_cast<uint64_t*>(value) = pool->most_used; return hipSuccess;
    default: return said(hipErrorInvalidValue);
    }
}

// A pool belongs to one device, which may read and write it.
TW_EXPORT hipError_t hipMemPoolSetAccess(hipMemPool_t handle, const hipMemAccessDesc* wanted, size_t count)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const Pool* const pool = pool_of(handle);
    if(pool == nullptr || wanted == nullptr)
        return said(hipErrorInvalidValue);
    for(size_t at = 0; at < count; ++at)
        if(wanted[at].location.id != pool->device || wanted[at].flags != hipMemAccessFlagsProtReadWrite)
            return said(hipErrorNotSupported);
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemPoolGetAccess(hipMemAccessFlags* flags, hipMemPool_t handle, hipMemLocation* location)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const Pool* const pool = pool_of(handle);
    if(pool == nullptr || flags == nullptr || location == nullptr)
        return said(hipErrorInvalidValue);
    *flags = location->id == pool->device ? hipMemAccessFlagsProtReadWrite : hipMemAccessFlagsProtNone;
    return hipSuccess;
}
