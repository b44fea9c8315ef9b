// Streams and events. All work is done when the call that asked for it returns.
#include "state.hpp"

#include <chrono>

using namespace stand_in;

namespace {

hipError_t new_stream(hipStream_t* stream)
{
    if(stream == nullptr)
        return said(hipErrorInvalidValue);
    if(!is_device(current_device))
        return said(hipErrorNoDevice);
    void* const made = new char;
    const std::lock_guard<std::mutex> guard(state().lock);
    state().streams.emplace(made, current_device);
    *stream = static_cast<hipStream_t>(made);
    return hipSuccess;
}

hipError_t new_event(hipEvent_t* event)
{
    if(event == nullptr)
        return said(hipErrorInvalidValue);
    void* const made = new char;
    const std::lock_guard<std::mutex> guard(state().lock);
    state().events.emplace(made, Point{});
    *event = static_cast<hipEvent_t>(made);
    return hipSuccess;
}

bool known(hipEvent_t event)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    return state().events.count(event) != 0;
}

double now_us()
{
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// Somebody waited: what was asked for up to then is done.
template <typename Chosen>
hipError_t reached(Chosen chosen)
{
    for(auto& [_, point] : state().events)
        if(chosen(point))
            point.reached = true;
    return hipSuccess;
}

} // namespace

TW_EXPORT hipError_t hipStreamCreate(hipStream_t* stream) { return new_stream(stream); }
TW_EXPORT hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) { return new_stream(stream); }
TW_EXPORT hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned, int) { return new_stream(stream); }

// All streams have the same priority.
TW_EXPORT hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest)
{
    for(int* const value : {least, greatest})
        if(value != nullptr)
            *value = 0;
    return hipSuccess;
}

TW_EXPORT hipError_t hipStreamGetPriority(hipStream_t stream, int* priority)
{
    if(priority == nullptr)
        return said(hipErrorInvalidValue);
    *priority = 0;
    return known(stream);
}

TW_EXPORT hipError_t hipStreamGetFlags(hipStream_t stream, unsigned* flags)
{
    if(flags == nullptr)
        return said(hipErrorInvalidValue);
    *flags = hipStreamDefault;
    return known(stream);
}

// Functions of the host: all work before them is done.
TW_EXPORT hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t function, void* data, unsigned flags)
{
    if(function == nullptr || flags != 0)
        return said(hipErrorInvalidValue);
    if(refused("hipStreamAddCallback"))
        return hipErrorStreamCaptureUnsupported;
    if(const hipError_t status = known(stream); status != hipSuccess)
        return status;
    function(stream, earlier_fault(device_of(stream)), data);
    return hipSuccess;
}

TW_EXPORT hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* data)
{
    if(function == nullptr)
        return said(hipErrorInvalidValue);
    hipError_t status = known(stream);
    if(status != hipSuccess)
        return status;
    if(recorded("hipLaunchHostFunc", stream, &status))
    {
        if(status == hipSuccess)
            capture.work.emplace_back([=] { return function(data), hipSuccess; });
        return status;
    }
    function(data);
    return hipSuccess;
}

// A stream that waits for an event of a captured stream is captured, too.
TW_EXPORT hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned)
{
    if(const hipError_t status = known(stream); status != hipSuccess)
        return status;
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto found = state().events.find(event);
    if(found == state().events.end())
        return said(hipErrorInvalidHandle);
    if(capture.active && found->second.captured)
        capture.streams.insert(stream);
    return hipSuccess;
}

TW_EXPORT hipError_t hipStreamDestroy(hipStream_t stream)
{
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        if(state().streams.erase(stream) == 0)
            return said(hipErrorInvalidHandle);
    }
    delete reinterpret_cast<char*>(stream);
    return hipSuccess;
}

TW_EXPORT hipError_t hipStreamSynchronize(hipStream_t stream)
{
    const int device = device_of(stream);
    if(device < 0)
        return said(hipErrorInvalidHandle);
    if(refused("hipStreamSynchronize"))
        return hipErrorStreamCaptureUnsupported;
    if(const hipError_t status = earlier_fault(device); status != hipSuccess)
        return status;
    const std::lock_guard<std::mutex> guard(state().lock);
    return reached([=](const Point& point) { return point.device == device && point.stream == stream; });
}

TW_EXPORT hipError_t hipStreamQuery(hipStream_t stream) { return known(stream); }

TW_EXPORT hipError_t hipDeviceSynchronize()
{
    if(!is_device(current_device))
        return said(hipErrorNoDevice);
    if(refused("hipDeviceSynchronize"))
        return hipErrorStreamCaptureUnsupported;
    if(const hipError_t status = earlier_fault(current_device); status != hipSuccess)
        return status;
    const std::lock_guard<std::mutex> guard(state().lock);
    return reached([](const Point& point) { return point.device == current_device; });
}

TW_EXPORT hipError_t hipExtStreamGetCUMask(hipStream_t stream, uint32_t words, uint32_t* mask)
{
    const int device = device_of(stream);
    if(device < 0)
        return said(hipErrorInvalidHandle);
    if(mask == nullptr || words == 0 || !is_device(device))
        return said(hipErrorInvalidValue);
    const auto units = static_cast<uint32_t>(devices[device].units);
    for(uint32_t word = 0; word < words; ++word)
    {
        const uint32_t left = units > 32 * word ? units - 32 * word : 0;
        mask[word]          = left >= 32 ? UINT32_MAX : (uint32_t(1) << left) - 1;
    }
    return hipSuccess;
}

TW_EXPORT hipError_t hipEventCreate(hipEvent_t* event) { return new_event(event); }
TW_EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) { return new_event(event); }

TW_EXPORT hipError_t hipEventDestroy(hipEvent_t event)
{
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        if(state().events.erase(event) == 0)
            return said(hipErrorInvalidHandle);
    }
    delete reinterpret_cast<char*>(event);
    return hipSuccess;
}

TW_EXPORT hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    const int device = device_of(stream);
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto found = state().events.find(event);
    if(found == state().events.end() || device < 0)
        return said(hipErrorInvalidHandle);
    const Script* const script = script_of(device);
    const bool scripted        = script != nullptr && !script->over;
    Point& point               = found->second;
    point.timed                = scripted || in_program;
    point.reached              = false;
    point.captured             = capture.active && capture.streams.count(stream) != 0;
    point.device               = device;
    point.stream               = stream;
    point.us                   = scripted ? script->now_us : in_program ? now_us() : 0;
    point.order                = state().recorded++;
    return hipSuccess;
}

TW_EXPORT hipError_t hipEventSynchronize(hipEvent_t event)
{
    if(refused("hipEventSynchronize"))
        return hipErrorStreamCaptureUnsupported;
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto found = state().events.find(event);
    if(found == state().events.end())
        return said(hipErrorInvalidHandle);
    if(const hipError_t status = earlier_fault(found->second.device); status != hipSuccess)
        return status;
    const Point last = found->second;
    return reached([=](const Point& point) {
        return point.device == last.device && point.stream == last.stream && point.order <= last.order;
    });
}

TW_EXPORT hipError_t hipEventQuery(hipEvent_t event)
{
    return said(known(event) ? hipSuccess : hipErrorInvalidHandle);
}

// There is no time on an emulated device, but for what a script says, and in programs the host's: programs check that
// there is one. As on a GPU, nobody may ask before having waited.
TW_EXPORT hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto first = state().events.find(start);
    const auto then  = state().events.find(stop);
    if(ms == nullptr || first == state().events.end() || then == state().events.end())
        return said(hipErrorInvalidHandle);
    if(!first->second.timed || !then->second.timed || first->second.device != then->second.device)
        return said(hipErrorNotSupported);
    if(!in_program && (!first->second.reached || !then->second.reached))
        return said(hipErrorNotReady);
    *ms = static_cast<float>((then->second.us - first->second.us) / 1000);
    return hipSuccess;
}
