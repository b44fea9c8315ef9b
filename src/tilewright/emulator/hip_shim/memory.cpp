// Device memory: allocations, plain copies and fills.
#include "memory.hpp"

using namespace stand_in;

TW_EXPORT hipError_t hipMalloc(void** address, size_t bytes)
{
    if(address == nullptr)
        return said(hipErrorInvalidValue);
    *address = nullptr;
    if(refused("hipMalloc"))
        return hipErrorStreamCaptureUnsupported;
    return bytes == 0 ? hipSuccess : ask(&Callbacks::allocate, current_device, bytes, address);
}

TW_EXPORT hipError_t hipFree(void* address)
{
    if(refused("hipFree"))
        return hipErrorStreamCaptureUnsupported;
    return free_any(address);
}

TW_EXPORT hipError_t hipMemcpy(void* target, const void* source, size_t bytes, hipMemcpyKind direction)
{
    if(refused("hipMemcpy"))
        return hipErrorStreamCaptureUnsupported;
    return copy_bytes(target, source, bytes, direction);
}

TW_EXPORT hipError_t hipMemcpyAsync(void* target, const void* source, size_t bytes, hipMemcpyKind direction,
                                    hipStream_t stream)
{
    return in_stream("hipMemcpyAsync", stream, [=] { return copy_bytes(target, source, bytes, direction); });
}

TW_EXPORT hipError_t hipMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                                      hipStream_t stream)
{
    return in_stream("hipMemset2DAsync", stream, [=] {
        passed(device_of(stream));
        return width == 0 || height == 0
                   ? hipSuccess
                   : ask(&Callbacks::fill, current_device, target, pitch, value, width, height);
    });
}

TW_EXPORT hipError_t hipMemsetAsync(void* target, int value, size_t bytes, hipStream_t stream)
{
    return hipMemset2DAsync(target, bytes, value, bytes, 1, stream);
}

TW_EXPORT hipError_t hipMemset(void* target, int value, size_t bytes)
{
    return hipMemsetAsync(target, value, bytes, nullptr);
}
