// A stand-in for libamdhip64: HIP's entry points for devices that are emulated.
//
// Handles, call configurations and each thread's state are kept here. Memory and launches belong to Python, which sets
// `callbacks` once. An entry point that is not defined does not exist: a library that needs it cannot be loaded.
//
// No lock is held while Python is called: a thread that waits for Python's own lock would block a fork for ever.
#ifndef TILEWRIGHT_STAND_IN_STATE_HPP
#define TILEWRIGHT_STAND_IN_STATE_HPP

#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1 // the name that headers before 5.0 ask for

#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "interface.hpp"

#define TW_EXPORT extern "C" __attribute__((visibility("default")))

namespace stand_in {

struct Image
{
    uint64_t number;
    const void* data;
};

struct Function
{
    Image image;
    std::string kernel;
};

struct Module
{
    int device;
    Image image;
    std::deque<Function> functions; // addresses stay: they are handles
};

// What an event marks. Only a scripted device has times: see Script.
struct Point
{
    bool timed         = false;
    bool reached       = false; // somebody waited for it
    int device         = -1;
    hipStream_t stream = nullptr;
    double us          = 0;
    uint64_t order     = 0; // of all that were recorded
};

// What all threads share.
struct State
{
    std::mutex lock;
    std::unordered_map<const void*, Function> stubs; // by the address of the host's stub
    std::unordered_map<void*, Module> modules;
    std::unordered_set<const void*> functions;
    std::unordered_map<void*, int> streams; // -> device
    std::unordered_map<void*, Point> events;
    uint64_t recorded = 0;
};

// Never destroyed: libraries take back what they registered after this library's own destructors ran.
inline State& state()
{
    static State* const made = new State;
    return *made;
}

// A device's time as a test wrote it: the first launch takes the first of `launches`, and so on; each fill and copy
// takes `other_us`. After the last launch of the list there is no time any more: none is ever made up.
struct Script
{
    std::vector<double> launches;
    size_t next   = 0;
    double now_us = 0;
    double other_us;
    bool over = false;

    void launched()
    {
        if(next < launches.size())
            now_us += launches[next++];
        else
            over = true;
    }
};

// The capture of a stream; at most one at a time.
struct Capture
{
    std::atomic<bool> active{false};
    hipStream_t stream = nullptr;
    size_t recorded    = 0;
    std::string refused; // names of calls, separated by spaces
};

inline Capture capture;
inline std::vector<DeviceFacts> devices;
inline Callbacks callbacks{};
inline std::atomic<bool> open{false};

inline thread_local int current_device = 0;
inline thread_local uint64_t dry       = 0; // one bit per device: launches do nothing
inline thread_local hipError_t last    = hipSuccess;
inline thread_local std::unordered_map<int, Script> scripts; // by device, of this thread's work

inline Script* script_of(int device)
{
    const auto found = scripts.find(device);
    return found == scripts.end() ? nullptr : &found->second;
}

// Remembers a failure for hipGetLastError.
inline hipError_t said(hipError_t status)
{
    if(status != hipSuccess)
        last = status;
    return status;
}

// The status of a call into Python. An exception may leave a callback anywhere, even before its first line (Ctrl-C):
// then nobody has written the status, and it is not success.
template <typename... Types, typename... Arguments>
hipError_t ask(void (*callback)(Types...), Arguments... arguments)
{
    if(!open.load(std::memory_order_acquire))
        return said(hipErrorDeinitialized);
    int status = hipErrorUnknown;
    callback(arguments..., &status);
    return said(static_cast<hipError_t>(status));
}

// Whether a call is refused because a stream is captured: a graph cannot contain it.
inline bool refused(const char* call)
{
    if(!capture.active)
        return false;
    capture.refused += (capture.refused.empty() ? "" : " ") + std::string(call);
    last = hipErrorStreamCaptureUnsupported;
    return true;
}

// Whether work in a stream is recorded instead of done. Work in the default stream would wait for the captured one, so
// it is refused: then `status` is set.
inline bool recorded(const char* call, hipStream_t stream, hipError_t* status)
{
    *status = hipSuccess;
    if(!capture.active)
        return false;
    if(stream == capture.stream)
    {
        ++capture.recorded;
        return true;
    }
    if(stream != nullptr)
        return false;
    refused(call);
    *status = said(hipErrorStreamCaptureImplicit);
    return true;
}

inline bool is_device(int index) { return index >= 0 && static_cast<size_t>(index) < devices.size(); }

// The device of a stream; negative for a handle that is no stream.
inline int device_of(hipStream_t stream)
{
    // No stream, hipStreamLegacy and hipStreamPerThread (2) are streams of the current device.
    if(reinterpret_cast<uintptr_t>(stream) <= 2)
        return current_device;
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto found = state().streams.find(stream);
    return found == state().streams.end() ? -1 : found->second;
}

inline hipError_t known(hipStream_t stream) { return said(device_of(stream) < 0 ? hipErrorInvalidHandle : hipSuccess); }

} // namespace stand_in

#endif
