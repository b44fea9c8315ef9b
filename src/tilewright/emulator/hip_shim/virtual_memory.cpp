// Virtual memory management. A reserved range is an allocation from the start: kernels can access parts to which nothing
// is mapped. Memory can be mapped to one range only.
#include "memory.hpp"

#include <memory>

using namespace stand_in;

namespace {

constexpr size_t GRANULE = 4096;

struct Physical
{
    size_t bytes;
    hipMemAllocationProp properties;
    void* mapped = nullptr;
};

struct VirtualMemory
{
    std::map<uintptr_t, std::pair<void*, size_t>> ranges; // start -> allocation around it, bytes
    std::unordered_set<Physical*> handles;
};

// Under the lock of `state`.
VirtualMemory& virtual_memory()
{
    static VirtualMemory* const made = new VirtualMemory;
    return *made;
}

Physical* physical_of(hipMemGenericAllocationHandle_t handle)
{
    auto* const found = reinterpret_cast<Physical*>(handle);
    return virtual_memory().handles.count(found) != 0 ? found : nullptr;
}

bool is_reserved(const void* address, size_t bytes)
{
    const auto& ranges = virtual_memory().ranges;
    const auto at      = reinterpret_cast<uintptr_t>(address);
    const auto after   = ranges.upper_bound(at);
    if(after == ranges.begin())
        return false;
    const auto& [start, range] = *std::prev(after);
    return at - start <= range.second && bytes <= range.second - (at - start);
}

} // namespace

TW_EXPORT hipError_t hipMemGetAllocationGranularity(size_t* bytes, const hipMemAllocationProp* properties,
                                                    hipMemAllocationGranularity_flags)
{
    if(bytes == nullptr || properties == nullptr)
        return said(hipErrorInvalidValue);
    *bytes = GRANULE;
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemAddressReserve(void** address, size_t bytes, size_t alignment, void*, unsigned long long)
{
    if(address == nullptr || bytes == 0 || bytes % GRANULE != 0 || (alignment & (alignment - 1)) != 0)
        return said(hipErrorInvalidValue);
    alignment   = alignment < GRANULE ? GRANULE : alignment;
    void* whole = nullptr;
    if(const hipError_t status = hipMalloc(&whole, bytes + alignment); status != hipSuccess)
        return status;
    const uintptr_t start = (reinterpret_cast<uintptr_t>(whole) + alignment - 1) / alignment * alignment;
    const std::lock_guard<std::mutex> guard(state().lock);
    virtual_memory().ranges[start] = {whole, bytes};
    *address                       = reinterpret_cast<void*>(start);
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemAddressFree(void* address, size_t bytes)
{
    void* whole = nullptr;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto found = virtual_memory().ranges.find(reinterpret_cast<uintptr_t>(address));
        if(found == virtual_memory().ranges.end() || found->second.second != bytes)
            return said(hipErrorInvalidValue);
        whole = found->second.first;
        virtual_memory().ranges.erase(found);
    }
    return hipFree(whole);
}

TW_EXPORT hipError_t hipMemCreate(hipMemGenericAllocationHandle_t* handle, size_t bytes,
                                  const hipMemAllocationProp* properties, unsigned long long)
{
    if(handle == nullptr || properties == nullptr || bytes == 0 || bytes % GRANULE != 0 ||
       !is_device(properties->location.id))
        return said(hipErrorInvalidValue);
    const std::lock_guard<std::mutex> guard(state().lock);
    auto* const made = new Physical{bytes, *properties};
    virtual_memory().handles.insert(made);
    *handle = reinterpret_cast<hipMemGenericAllocationHandle_t>(made);
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    Physical* const found = physical_of(handle);
    if(found == nullptr)
        return said(hipErrorInvalidValue);
    virtual_memory().handles.erase(found);
    delete found; // its range keeps the contents until it is freed
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp* properties,
                                                             hipMemGenericAllocationHandle_t handle)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const Physical* const found = physical_of(handle);
    if(properties == nullptr || found == nullptr)
        return said(hipErrorInvalidValue);
    *properties = found->properties;
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemMap(void* address, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t handle,
                               unsigned long long)
{
    bool again = false;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        Physical* const found = physical_of(handle);
        if(found == nullptr || offset != 0 || bytes > found->bytes || !is_reserved(address, bytes))
            return said(hipErrorInvalidValue);
        again = found->mapped != nullptr && found->mapped != address;
        if(!again)
            found->mapped = address;
    }
    return again ? static_cast<hipError_t>(tilewright_missing("hipMemMap of memory that is mapped already")) : hipSuccess;
}

TW_EXPORT hipError_t hipMemUnmap(void* address, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    if(!is_reserved(address, bytes))
        return said(hipErrorInvalidValue);
    for(Physical* const each : virtual_memory().handles)
        if(each->mapped == address)
            each->mapped = nullptr;
    return hipSuccess;
}

// All that is mapped can be read and written.
TW_EXPORT hipError_t hipMemSetAccess(void* address, size_t bytes, const hipMemAccessDesc* wanted, size_t count)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    return said(wanted != nullptr && count > 0 && is_reserved(address, bytes) ? hipSuccess : hipErrorInvalidValue);
}

TW_EXPORT hipError_t hipMemGetAccess(unsigned long long* flags, const hipMemLocation* location, void* address)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    if(flags == nullptr || location == nullptr || !is_reserved(address, 1))
        return said(hipErrorInvalidValue);
    *flags = hipMemAccessFlagsProtReadWrite;
    return hipSuccess;
}
