// A stand-in for libamdhip64: HIP's entry points for devices that are emulated.
//
// Handles, call configurations and each thread's state are kept here. Memory and launches belong to Python, which sets
// `callbacks` once. In a program that `tilewright emulate` started, Python is started by the first call that needs a
// device (embed.cpp). Functions of HIP that are not defined here are generated: they report themselves and fail.
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
#include <functional>
#include <map>
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

// A variable of device code that host code registered: its name, and for a managed one the host's pointer to it.
struct Variable
{
    Image image;
    std::string name;
    size_t bytes;
    void** managed       = nullptr;
    uint64_t bound_in    = 0; // one bit per device whose code knows the managed memory
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
    bool captured      = false; // recorded in a stream that is captured
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
    std::unordered_map<const void*, Variable> variables; // by the address of the host's variable
    std::unordered_map<void*, Module> modules;
    std::unordered_set<const void*> functions;
    std::unordered_map<void*, int> streams; // -> device
    std::unordered_map<void*, Point> events;
    std::map<uintptr_t, size_t> host_visible; // pinned and managed memory: copies may call it the host's
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

using Work = std::function<hipError_t()>;

// The capture of a stream, and of those that wait for its events; at most one at a time.
struct Capture
{
    std::atomic<bool> active{false};
    hipStream_t stream = nullptr; // where it began
    std::unordered_set<void*> streams;
    size_t recorded = 0;
    std::vector<Work> work;
    std::string refused; // names of calls, separated by spaces
};

inline Capture capture;
inline std::vector<DeviceFacts> devices;
inline Callbacks callbacks{};
inline std::atomic<bool> open{false};
// Whether this process is a program that `tilewright emulate` started. As on a GPU, a kernel's fault then makes all
// later work on its device fail, and events have times: those of the host.
inline std::atomic<bool> in_program{false};
constexpr int MOST_DEVICES = 64;
inline std::atomic<int> failures[MOST_DEVICES]; // the status of each device's first fault

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

// Starts Python in a program that `tilewright emulate` started; in others it does nothing.
void start_python();

inline void make_ready()
{
    if(!open.load(std::memory_order_acquire))
        start_python();
}

// The status of a call into Python. An exception may leave a callback anywhere, even before its first line (Ctrl-C):
// then nobody has written the status, and it is not success.
template <typename... Types, typename... Arguments>
hipError_t ask(void (*Callbacks::*callback)(Types...), Arguments... arguments)
{
    make_ready();
    if(!open.load(std::memory_order_acquire))
        return said(hipErrorDeinitialized);
    int status = hipErrorUnknown;
    (callbacks.*callback)(arguments..., &status);
    return said(static_cast<hipError_t>(status));
}

// Reports a call that is not implemented, and returns hipErrorNotSupported (embed.cpp).
TW_EXPORT int tilewright_missing(const char* call);

// Writes the addresses of managed variables into the code of an image (symbols.cpp).
hipError_t bind_managed(int device, const Image& image);

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
    if(capture.streams.count(stream) != 0)
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

inline bool is_device(int index)
{
    make_ready();
    return index >= 0 && static_cast<size_t>(index) < devices.size();
}

// Keeps a kernel's fault on a device; returns `status`.
inline hipError_t note_fault(int device, hipError_t status)
{
    if(in_program && (status == hipErrorIllegalAddress || status == hipErrorLaunchFailure) && device < MOST_DEVICES)
        failures[device] = status;
    return status;
}

// The fault of an earlier kernel on a device, or success.
inline hipError_t earlier_fault(int device)
{
    return device >= 0 && device < MOST_DEVICES ? said(static_cast<hipError_t>(failures[device].load())) : hipSuccess;
}

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
