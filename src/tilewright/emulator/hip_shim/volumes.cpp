// Copies and fills in three dimensions, and copies between devices.
#include "memory.hpp"

using namespace stand_in;

namespace {

char* place_in(const hipPitchedPtr& volume, const hipPos& at)
{
    return static_cast<char*>(volume.ptr) + (at.z * volume.ysize + at.y) * volume.pitch + at.x;
}

hipError_t copy_volume(const hipMemcpy3DParms& asked)
{
    hipError_t status = hipSuccess;
    for(size_t z = 0; z < asked.extent.depth && status == hipSuccess; ++z)
    {
        hipPos from = asked.srcPos, to = asked.dstPos;
        from.z += z;
        to.z += z;
        status = copy_rows(place_in(asked.dstPtr, to), asked.dstPtr.pitch, place_in(asked.srcPtr, from),
                           asked.srcPtr.pitch, asked.extent.width, asked.extent.height, asked.kind);
    }
    return status;
}

} // namespace

TW_EXPORT hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* given, hipStream_t stream)
{
    if(given == nullptr)
        return said(hipErrorInvalidValue);
    if(given->srcArray != nullptr || given->dstArray != nullptr)
        return static_cast<hipError_t>(tilewright_missing("hipMemcpy3D with an array"));
    if(given->srcPtr.ptr == nullptr || given->dstPtr.ptr == nullptr)
        return said(hipErrorInvalidValue);
    return in_stream("hipMemcpy3DAsync", stream, [asked = *given] { return copy_volume(asked); });
}

TW_EXPORT hipError_t hipMemcpy3D(const hipMemcpy3DParms* given)
{
    if(refused("hipMemcpy3D"))
        return hipErrorStreamCaptureUnsupported;
    return hipMemcpy3DAsync(given, nullptr);
}

TW_EXPORT hipError_t hipMemset3DAsync(hipPitchedPtr volume, int value, hipExtent extent, hipStream_t stream)
{
    if(extent.height > volume.ysize && extent.depth > 1)
        return said(hipErrorInvalidValue);
    hipError_t status = hipSuccess;
    for(size_t z = 0; z < extent.depth && status == hipSuccess; ++z)
        status = hipMemset2DAsync(place_in(volume, hipPos{0, 0, z}), volume.pitch, value, extent.width, extent.height,
                                  stream);
    return status;
}

TW_EXPORT hipError_t hipMemset3D(hipPitchedPtr volume, int value, hipExtent extent)
{
    return hipMemset3DAsync(volume, value, extent, nullptr);
}

TW_EXPORT hipError_t hipMemcpyPeerAsync(void* target, int to, const void* source, int from, size_t bytes,
                                        hipStream_t stream)
{
    if(!is_device(to) || !is_device(from))
        return said(hipErrorInvalidDevice);
    return hipMemcpyAsync(target, source, bytes, hipMemcpyDeviceToDevice, stream);
}

TW_EXPORT hipError_t hipMemcpyPeer(void* target, int to, const void* source, int from, size_t bytes)
{
    if(!is_device(to) || !is_device(from))
        return said(hipErrorInvalidDevice);
    return hipMemcpy(target, source, bytes, hipMemcpyDeviceToDevice);
}

TW_EXPORT hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr, int from, int to)
{
    if(value == nullptr)
        return said(hipErrorInvalidValue);
    *value = 0;
    return said(is_device(from) && is_device(to) && from != to ? hipSuccess : hipErrorInvalidDevice);
}
