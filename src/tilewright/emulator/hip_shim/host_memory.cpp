// Pinned, managed and pitched memory, and the copies and fills beyond the plain ones.
#include "memory.hpp"

using namespace stand_in;

TW_EXPORT hipError_t hipHostMalloc(void** address, size_t bytes, unsigned) { return allocate_visible(address, bytes); }
TW_EXPORT hipError_t hipMallocHost(void** address, size_t bytes) { return allocate_visible(address, bytes); }
TW_EXPORT hipError_t hipHostAlloc(void** address, size_t bytes, unsigned) { return allocate_visible(address, bytes); }
TW_EXPORT hipError_t hipMallocManaged(void** address, size_t bytes, unsigned) { return allocate_visible(address, bytes); }
TW_EXPORT hipError_t hipHostFree(void* address) { return hipFree(address); }
TW_EXPORT hipError_t hipFreeHost(void* address) { return hipFree(address); }

TW_EXPORT hipError_t hipHostGetDevicePointer(void** address, void* host, unsigned)
{
    if(address == nullptr || !is_host_visible(host))
        return said(hipErrorInvalidValue);
    *address = host;
    return hipSuccess;
}

TW_EXPORT hipError_t hipHostGetFlags(unsigned* flags, void* host)
{
    if(flags == nullptr || !is_host_visible(host))
        return said(hipErrorInvalidValue);
    *flags = hipHostMallocDefault;
    return hipSuccess;
}

// All memory is at hand everywhere.
TW_EXPORT hipError_t hipMemPrefetchAsync(const void*, size_t, int, hipStream_t stream) { return known(stream); }
TW_EXPORT hipError_t hipMemAdvise(const void*, size_t, hipMemoryAdvise, int) { return hipSuccess; }
TW_EXPORT hipError_t hipStreamAttachMemAsync(hipStream_t stream, void*, size_t, unsigned) { return known(stream); }

TW_EXPORT hipError_t hipExtMallocWithFlags(void** address, size_t bytes, unsigned) { return hipMalloc(address, bytes); }

TW_EXPORT hipError_t hipMallocPitch(void** address, size_t* pitch, size_t width, size_t height)
{
    if(pitch == nullptr)
        return said(hipErrorInvalidValue);
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    return hipMalloc(address, *pitch * height);
}

TW_EXPORT hipError_t hipMemAllocPitch(hipDeviceptr_t* address, size_t* pitch, size_t width, size_t height, unsigned)
{
    return hipMallocPitch(address, pitch, width, height);
}

TW_EXPORT hipError_t hipMalloc3D(hipPitchedPtr* place, hipExtent extent)
{
    if(place == nullptr)
        return said(hipErrorInvalidValue);
    place->xsize = extent.width;
    place->ysize = extent.height;
    return hipMallocPitch(&place->ptr, &place->pitch, extent.width, extent.height * extent.depth);
}

TW_EXPORT hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total)
{
    if(!is_device(current_device))
        return said(hipErrorNoDevice);
    uint64_t left           = 0;
    const hipError_t status = ask(&Callbacks::room, current_device, &left);
    if(free_bytes != nullptr)
        *free_bytes = left;
    if(total != nullptr)
        *total = devices[current_device].memory_bytes;
    return status;
}

TW_EXPORT hipError_t hipMemGetAddressRange(hipDeviceptr_t* start, size_t* bytes, hipDeviceptr_t address)
{
    AllocationRange range;
    if(const hipError_t status = range_of(address, &range); status != hipSuccess)
        return status;
    if(range.bytes == 0)
        return said(hipErrorNotFound);
    if(start != nullptr)
        *start = reinterpret_cast<hipDeviceptr_t>(range.start);
    if(bytes != nullptr)
        *bytes = range.bytes;
    return hipSuccess;
}

TW_EXPORT hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address)
{
    if(attributes == nullptr)
        return said(hipErrorInvalidValue);
    AllocationRange range;
    if(const hipError_t status = range_of(address, &range); status != hipSuccess)
        return status;
    if(range.bytes == 0)
        return said(hipErrorInvalidValue);
    const bool visible        = is_host_visible(address);
    *attributes               = hipPointerAttribute_t{};
    attributes->device        = range.device;
    attributes->devicePointer = const_cast<void*>(address);
    attributes->hostPointer   = visible ? const_cast<void*>(address) : nullptr;
#if HIP_VERSION_MAJOR >= 6
    attributes->type = visible ? hipMemoryTypeHost : hipMemoryTypeDevice;
#else
    attributes->memoryType = visible ? hipMemoryTypeHost : hipMemoryTypeDevice;
#endif
    return hipSuccess;
}

TW_EXPORT hipError_t hipMemcpyWithStream(void* target, const void* source, size_t bytes, hipMemcpyKind direction,
                                         hipStream_t stream)
{
    const hipError_t status = known(stream);
    return status == hipSuccess ? hipMemcpy(target, source, bytes, direction) : status;
}

namespace {
// HIP 7 made the source of these copies const.
template <class T>
struct SecondParameter;
template <class Result, class First, class Second, class... Others>
struct SecondParameter<Result(First, Second, Others...)>
{
    using type = Second;
};
using HostSource = SecondParameter<decltype(hipMemcpyHtoD)>::type;
} // namespace

TW_EXPORT hipError_t hipMemcpyHtoD(hipDeviceptr_t target, HostSource source, size_t bytes)
{
    return hipMemcpy(target, source, bytes, hipMemcpyHostToDevice);
}

TW_EXPORT hipError_t hipMemcpyDtoH(void* target, hipDeviceptr_t source, size_t bytes)
{
    return hipMemcpy(target, source, bytes, hipMemcpyDeviceToHost);
}

TW_EXPORT hipError_t hipMemcpyDtoD(hipDeviceptr_t target, hipDeviceptr_t source, size_t bytes)
{
    return hipMemcpy(target, source, bytes, hipMemcpyDeviceToDevice);
}

TW_EXPORT hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t target, HostSource source, size_t bytes, hipStream_t stream)
{
    return hipMemcpyAsync(target, source, bytes, hipMemcpyHostToDevice, stream);
}

TW_EXPORT hipError_t hipMemcpyDtoHAsync(void* target, hipDeviceptr_t source, size_t bytes, hipStream_t stream)
{
    return hipMemcpyAsync(target, source, bytes, hipMemcpyDeviceToHost, stream);
}

TW_EXPORT hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t target, hipDeviceptr_t source, size_t bytes, hipStream_t stream)
{
    return hipMemcpyAsync(target, source, bytes, hipMemcpyDeviceToDevice, stream);
}

TW_EXPORT hipError_t hipMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                                 size_t width, size_t height, hipMemcpyKind direction)
{
    if(refused("hipMemcpy2D"))
        return hipErrorStreamCaptureUnsupported;
    return copy_rows(target, target_pitch, source, source_pitch, width, height, direction);
}

TW_EXPORT hipError_t hipMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                                      size_t width, size_t height, hipMemcpyKind direction, hipStream_t stream)
{
    return in_stream("hipMemcpy2DAsync", stream, [=] {
        return copy_rows(target, target_pitch, source, source_pitch, width, height, direction);
    });
}

TW_EXPORT hipError_t hipMemset2D(void* target, size_t pitch, int value, size_t width, size_t height)
{
    return hipMemset2DAsync(target, pitch, value, width, height, nullptr);
}

TW_EXPORT hipError_t hipMemsetD8(hipDeviceptr_t target, unsigned char value, size_t count)
{
    return set_values("hipMemsetD8", target, value, count, nullptr);
}

TW_EXPORT hipError_t hipMemsetD16(hipDeviceptr_t target, unsigned short value, size_t count)
{
    return set_values("hipMemsetD16", target, value, count, nullptr);
}

TW_EXPORT hipError_t hipMemsetD32(hipDeviceptr_t target, int value, size_t count)
{
    return set_values("hipMemsetD32", target, value, count, nullptr);
}

TW_EXPORT hipError_t hipMemsetD8Async(hipDeviceptr_t target, unsigned char value, size_t count, hipStream_t stream)
{
    return set_values("hipMemsetD8Async", target, value, count, stream);
}

TW_EXPORT hipError_t hipMemsetD16Async(hipDeviceptr_t target, unsigned short value, size_t count, hipStream_t stream)
{
    return set_values("hipMemsetD16Async", target, value, count, stream);
}

TW_EXPORT hipError_t hipMemsetD32Async(hipDeviceptr_t target, int value, size_t count, hipStream_t stream)
{
    return set_values("hipMemsetD32Async", target, value, count, stream);
}
