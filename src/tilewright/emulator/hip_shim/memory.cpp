// Memory: every call goes to Python, which has it.
#include "state.hpp"

using namespace stand_in;

namespace {

// Fills and copies take time where a script says so.
void passed(int device)
{
    if(Script* const script = script_of(device))
        script->now_us += script->other_us;
}

} // namespace

TW_EXPORT hipError_t hipMalloc(void** address, size_t bytes)
{
    if(address == nullptr)
        return said(hipErrorInvalidValue);
    *address = nullptr;
    if(refused("hipMalloc"))
        return hipErrorStreamCaptureUnsupported;
    return bytes == 0 ? hipSuccess : ask(callbacks.allocate, current_device, bytes, address);
}

TW_EXPORT hipError_t hipFree(void* address)
{
    if(refused("hipFree"))
        return hipErrorStreamCaptureUnsupported;
    return address == nullptr ? hipSuccess : ask(callbacks.release, current_device, address);
}

TW_EXPORT hipError_t hipMemcpy(void* target, const void* source, size_t bytes, hipMemcpyKind direction)
{
    if(refused("hipMemcpy"))
        return hipErrorStreamCaptureUnsupported;
    passed(current_device);
    return bytes == 0 ? hipSuccess : ask(callbacks.copy, current_device, target, source, bytes, static_cast<int>(direction));
}

TW_EXPORT hipError_t hipMemcpyAsync(void* target, const void* source, size_t bytes, hipMemcpyKind direction,
                                    hipStream_t stream)
{
    hipError_t status = known(stream);
    if(status != hipSuccess || recorded("hipMemcpyAsync", stream, &status))
        return status;
    return hipMemcpy(target, source, bytes, direction);
}

TW_EXPORT hipError_t hipMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                                      hipStream_t stream)
{
    hipError_t status = known(stream);
    if(status != hipSuccess || recorded("hipMemset2DAsync", stream, &status))
        return status;
    passed(device_of(stream));
    return width == 0 || height == 0 ? hipSuccess : ask(callbacks.fill, current_device, target, pitch, value, width, height);
}

TW_EXPORT hipError_t hipMemsetAsync(void* target, int value, size_t bytes, hipStream_t stream)
{
    return hipMemset2DAsync(target, bytes, value, bytes, 1, stream);
}

TW_EXPORT hipError_t hipMemset(void* target, int value, size_t bytes)
{
    return hipMemsetAsync(target, value, bytes, nullptr);
}
