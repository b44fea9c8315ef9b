// Devices, errors, and what Python sets.
#include "state.hpp"

#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <utility>

using namespace stand_in;

namespace {

void before_fork() { state().lock.lock(); }
void after_fork() { state().lock.unlock(); }

struct Named
{
    hipError_t status;
    const char* name;
    const char* text;
};

// Every status that an entry point here can give, or Python behind it.
const Named* named(hipError_t status)
{
#define TW_STATUS(status, text) {status, #status, text}
    static const Named table[] = {
        TW_STATUS(hipSuccess, "no error"),
        TW_STATUS(hipErrorInvalidValue, "an argument is invalid"),
        TW_STATUS(hipErrorOutOfMemory, "the device's memory is full"),
        TW_STATUS(hipErrorDeinitialized, "the process ends, or the emulated device was not opened"),
        TW_STATUS(hipErrorInvalidConfiguration, "the launch configuration is not allowed"),
        TW_STATUS(hipErrorInvalidPitchValue, "rows are longer than their distance"),
        TW_STATUS(hipErrorInvalidSymbol, "the symbol is not a registered variable"),
        TW_STATUS(hipErrorInvalidMemcpyDirection, "the direction of the copy contradicts its addresses"),
        TW_STATUS(hipErrorMissingConfiguration, "a launch without a configuration"),
        TW_STATUS(hipErrorInvalidDeviceFunction, "the function is not a registered kernel"),
        TW_STATUS(hipErrorNoDevice, "there is no device"),
        TW_STATUS(hipErrorInvalidDevice, "there is no device of this number"),
        TW_STATUS(hipErrorInvalidImage, "the code object cannot be used"),
        TW_STATUS(hipErrorNoBinaryForGpu, "the library has no code for this device"),
        TW_STATUS(hipErrorFileNotFound, "the file cannot be read"),
        TW_STATUS(hipErrorInvalidHandle, "the handle is not a live one"),
        TW_STATUS(hipErrorNotFound, "there is no kernel of this name"),
        TW_STATUS(hipErrorNotReady, "not finished yet"),
        TW_STATUS(hipErrorUnsupportedLimit, "the emulated device does not have this limit"),
        TW_STATUS(hipErrorIllegalAddress, "a kernel accessed memory that is not allocated"),
        TW_STATUS(hipErrorLaunchFailure, "a kernel failed"),
        TW_STATUS(hipErrorCooperativeLaunchTooLarge, "a cooperative launch with more work-groups than are resident"),
        TW_STATUS(hipErrorIllegalState, "the call is not possible now"),
        TW_STATUS(hipErrorStreamCaptureUnsupported, "a captured stream cannot contain this call"),
        TW_STATUS(hipErrorStreamCaptureInvalidated, "a call made the capture of the stream invalid"),
        TW_STATUS(hipErrorStreamCaptureImplicit, "the default stream waits for a stream that is captured"),
        TW_STATUS(hipErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
        TW_STATUS(hipErrorPeerAccessNotEnabled, "peer access is not enabled"),
        TW_STATUS(hipErrorNotSupported, "the emulated device cannot do this"),
        TW_STATUS(hipErrorUnknown, "unknown error"),
    };
#undef TW_STATUS
    for(const Named& entry : table)
        if(entry.status == status)
            return &entry;
    return nullptr;
}

} // namespace

TW_EXPORT void tilewright_open(const DeviceFacts* facts, int count, const Callbacks* functions)
{
    devices.assign(facts, facts + count);
    callbacks = *functions;
    static const int registered = pthread_atfork(before_fork, after_fork, after_fork);
    static_cast<void>(registered);
    open.store(true, std::memory_order_release);
}

// Python ends: nothing may call it any more.
TW_EXPORT void tilewright_close() { open.store(false, std::memory_order_release); }

// Whether launches of this thread on a device do nothing.
TW_EXPORT void tilewright_dry(int device, int on)
{
    const uint64_t bit = uint64_t(1) << device;
    dry                = on ? dry | bit : dry & ~bit;
}

// The times of this thread's next launches on a device, until `tilewright_unscript`.
TW_EXPORT void tilewright_script(int device, const double* launches_us, size_t count, double other_us)
{
    Script script;
    script.launches.assign(launches_us, launches_us + count);
    script.other_us = other_us;
    scripts.insert_or_assign(device, std::move(script));
}

// How many launches of the list there still are.
TW_EXPORT size_t tilewright_script_left(int device)
{
    const Script* const script = script_of(device);
    return script == nullptr ? 0 : script->launches.size() - script->next;
}

TW_EXPORT void tilewright_unscript(int device) { scripts.erase(device); }

TW_EXPORT hipError_t hipInit(unsigned flags) { return said(flags == 0 ? hipSuccess : hipErrorInvalidValue); }

TW_EXPORT hipError_t hipGetDeviceCount(int* count)
{
    if(count == nullptr)
        return said(hipErrorInvalidValue);
    make_ready();
    *count = static_cast<int>(devices.size());
    return said(devices.empty() ? hipErrorNoDevice : hipSuccess);
}

TW_EXPORT hipError_t hipSetDevice(int index)
{
    if(!is_device(index))
        return said(hipErrorInvalidDevice);
    current_device = index;
    return hipSuccess;
}

TW_EXPORT hipError_t hipGetDevice(int* index)
{
    if(index == nullptr)
        return said(hipErrorInvalidValue);
    *index = current_device;
    return said(is_device(current_device) ? hipSuccess : hipErrorNoDevice);
}

TW_EXPORT hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int index)
{
    if(properties == nullptr)
        return said(hipErrorInvalidValue);
    if(!is_device(index))
        return said(hipErrorInvalidDevice);
    const DeviceFacts& facts = devices[index];
    std::memset(properties, 0, sizeof(*properties));
    std::memcpy(properties->name, facts.name, sizeof(facts.name));
    std::memcpy(properties->gcnArchName, facts.arch, sizeof(facts.arch));
    properties->totalGlobalMem                   = facts.memory_bytes;
    properties->sharedMemPerBlock                = facts.lds_bytes;
    properties->maxSharedMemoryPerMultiProcessor = facts.lds_unit_bytes;
    properties->regsPerBlock                     = facts.block_registers;
    properties->warpSize                         = facts.wave_size;
    properties->maxThreadsPerBlock               = facts.max_block_threads;
    properties->maxThreadsPerMultiProcessor      = facts.max_unit_threads;
    properties->multiProcessorCount              = facts.units;
    properties->clockRate                        = facts.clock_khz;
    properties->l2CacheSize                      = facts.l2_bytes;
    properties->major                            = facts.major;
    properties->minor                            = facts.minor;
    properties->totalConstMem                    = INT32_MAX;
    properties->concurrentKernels                = 1;
    properties->canMapHostMemory                 = 1;
    properties->managedMemory                    = 1;
    properties->concurrentManagedAccess          = 1;
    properties->cooperativeLaunch                = 1;
    properties->pciBusID                         = index + 1;
    properties->texturePitchAlignment            = 256;
    for(int& limit : properties->maxThreadsDim)
        limit = facts.max_block_threads;
    for(int& limit : properties->maxGridSize)
        limit = INT32_MAX;
    return hipSuccess;
}

TW_EXPORT hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int index)
{
    if(value == nullptr)
        return said(hipErrorInvalidValue);
    if(!is_device(index))
        return said(hipErrorInvalidDevice);
    const DeviceFacts& facts = devices[index];
    switch(attribute)
    {
    case hipDeviceAttributeWarpSize: *value = facts.wave_size; break;
    case hipDeviceAttributeMultiprocessorCount: *value = facts.units; break;
    case hipDeviceAttributeMaxThreadsPerBlock: *value = facts.max_block_threads; break;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor: *value = facts.max_unit_threads; break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = static_cast<int>(facts.lds_bytes); break;
    case hipDeviceAttributeMaxRegistersPerBlock: *value = facts.block_registers; break;
    case hipDeviceAttributeClockRate: *value = facts.clock_khz; break;
    case hipDeviceAttributeL2CacheSize: *value = facts.l2_bytes; break;
    case hipDeviceAttributeMaxBlockDimX:
    case hipDeviceAttributeMaxBlockDimY:
    case hipDeviceAttributeMaxBlockDimZ: *value = facts.max_block_threads; break;
    case hipDeviceAttributeMaxGridDimX:
    case hipDeviceAttributeMaxGridDimY:
    case hipDeviceAttributeMaxGridDimZ:
    case hipDeviceAttributeTotalConstantMemory: *value = INT32_MAX; break;
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(facts.lds_unit_bytes); break;
    case hipDeviceAttributeConcurrentKernels:
    case hipDeviceAttributeCanMapHostMemory:
    case hipDeviceAttributeManagedMemory:
    case hipDeviceAttributeConcurrentManagedAccess:
    case hipDeviceAttributeCooperativeLaunch: *value = 1; break;
    case hipDeviceAttributePciBusId: *value = index + 1; break;
    case hipDeviceAttributePciDeviceId:
    case hipDeviceAttributeComputeMode:
    case hipDeviceAttributeIntegrated:
    case hipDeviceAttributeIsMultiGpuBoard:
    case hipDeviceAttributeKernelExecTimeout:
    case hipDeviceAttributePageableMemoryAccess:
    case hipDeviceAttributeCooperativeMultiDeviceLaunch: *value = 0; break;
    case hipDeviceAttributeComputeCapabilityMajor: *value = facts.major; break;
    case hipDeviceAttributeComputeCapabilityMinor: *value = facts.minor; break;
    default: return said(hipErrorNotSupported);
    }
    return hipSuccess;
}

// No device of the emulated ones is on a bus; each has an address of its own all the same.
TW_EXPORT hipError_t hipDeviceGetPCIBusId(char* text, int length, int index)
{
    if(text == nullptr || length < 13)
        return said(hipErrorInvalidValue);
    if(!is_device(index))
        return said(hipErrorInvalidDevice);
    std::snprintf(text, length, "0000:%02x:00.0", index + 1);
    return hipSuccess;
}

TW_EXPORT hipError_t hipDriverGetVersion(int* version)
{
    if(version == nullptr)
        return said(hipErrorInvalidValue);
    *version = HIP_VERSION; // that of the headers: what callers were compiled for
    return hipSuccess;
}

TW_EXPORT hipError_t hipRuntimeGetVersion(int* version) { return hipDriverGetVersion(version); }

TW_EXPORT hipError_t hipGetLastError()
{
    const hipError_t status = last;
    last                    = hipSuccess;
    return status;
}

TW_EXPORT hipError_t hipPeekAtLastError() { return last; }

TW_EXPORT const char* hipGetErrorName(hipError_t status)
{
    const Named* const entry = named(status);
    return entry != nullptr ? entry->name : "hipErrorUnknown";
}

TW_EXPORT const char* hipGetErrorString(hipError_t status)
{
    const Named* const entry = named(status);
    return entry != nullptr ? entry->text : "unknown error";
}
