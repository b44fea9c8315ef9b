// Further questions about devices, and settings that have no effect on an emulated one.
#include "state.hpp"

#include <cstdio>
#include <cstring>

using namespace stand_in;

TW_EXPORT hipError_t hipDeviceGet(hipDevice_t* device, int index)
{
    if(device == nullptr)
        return said(hipErrorInvalidValue);
    if(!is_device(index))
        return said(hipErrorInvalidDevice);
    *device = index;
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceGetName(char* text, int length, hipDevice_t device)
{
    if(text == nullptr || length < 1)
        return said(hipErrorInvalidValue);
    if(!is_device(device))
        return said(hipErrorInvalidDevice);
    std::snprintf(text, length, "%s", devices[device].name);
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device)
{
    if(bytes == nullptr)
        return said(hipErrorInvalidValue);
    if(!is_device(device))
        return said(hipErrorInvalidDevice);
    *bytes = devices[device].memory_bytes;
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t device)
{
    if(major == nullptr || minor == nullptr)
        return said(hipErrorInvalidValue);
    if(!is_device(device))
        return said(hipErrorInvalidDevice);
    *major = devices[device].major;
    *minor = devices[device].minor;
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceGetByPCIBusId(int* index, const char* text)
{
    unsigned bus = 0;
    if(index == nullptr || text == nullptr || std::sscanf(text, "%*x:%x:", &bus) != 1 || !is_device(int(bus) - 1))
        return said(hipErrorInvalidValue);
    *index = int(bus) - 1;
    return hipSuccess;
}

// A fault is forgotten. Memory stays allocated.
TW_EXPORT hipError_t hipDeviceReset()
{
    if(!is_device(current_device))
        return said(hipErrorNoDevice);
    failures[current_device] = hipSuccess;
    last                     = hipSuccess;
    return hipSuccess;
}

// Each emulated device has its own memory: kernels of one cannot access that of another.
TW_EXPORT hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer)
{
    if(can == nullptr)
        return said(hipErrorInvalidValue);
    *can = 0;
    return said(is_device(device) && is_device(peer) ? hipSuccess : hipErrorInvalidDevice);
}

TW_EXPORT hipError_t hipDeviceEnablePeerAccess(int peer, unsigned)
{
    return said(is_device(peer) ? hipErrorNotSupported : hipErrorInvalidDevice);
}

TW_EXPORT hipError_t hipDeviceDisablePeerAccess(int peer)
{
    return said(is_device(peer) ? hipErrorPeerAccessNotEnabled : hipErrorInvalidDevice);
}

TW_EXPORT hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w, hipChannelFormatKind kind)
{
    return {x, y, z, w, kind};
}

// Limits: only the heap of the kernels' malloc has one.
TW_EXPORT hipError_t hipDeviceGetLimit(size_t* bytes, hipLimit_t limit)
{
    if(bytes == nullptr)
        return said(hipErrorInvalidValue);
    if(limit != hipLimitMallocHeapSize)
        return said(hipErrorUnsupportedLimit);
    uint64_t found          = 0;
    const hipError_t status = ask(&Callbacks::heap, current_device, &found, 0);
    *bytes                  = found;
    return status;
}

TW_EXPORT hipError_t hipDeviceSetLimit(hipLimit_t limit, size_t bytes)
{
    if(limit != hipLimitMallocHeapSize)
        return said(hipErrorUnsupportedLimit);
    uint64_t wanted = bytes;
    return bytes == 0 ? said(hipErrorInvalidValue) : ask(&Callbacks::heap, current_device, &wanted, 1);
}

// Caches and schedules: nothing to set.
TW_EXPORT hipError_t hipSetDeviceFlags(unsigned) { return hipSuccess; }
TW_EXPORT hipError_t hipDeviceSetCacheConfig(hipFuncCache_t) { return hipSuccess; }
TW_EXPORT hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig) { return hipSuccess; }
TW_EXPORT hipError_t hipProfilerStart() { return hipSuccess; }
TW_EXPORT hipError_t hipProfilerStop() { return hipSuccess; }

TW_EXPORT hipError_t hipGetDeviceFlags(unsigned* flags)
{
    if(flags == nullptr)
        return said(hipErrorInvalidValue);
    *flags = hipDeviceScheduleAuto;
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceGetCacheConfig(hipFuncCache_t* config)
{
    if(config == nullptr)
        return said(hipErrorInvalidValue);
    *config = hipFuncCachePreferNone;
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig* config)
{
    if(config == nullptr)
        return said(hipErrorInvalidValue);
    *config = hipSharedMemBankSizeFourByte;
    return hipSuccess;
}
