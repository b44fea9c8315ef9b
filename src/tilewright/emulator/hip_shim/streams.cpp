// Streams and events. All work is done when the call that asked for it returns.
#include "state.hpp"

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
    const bool timed           = script != nullptr && !script->over;
    found->second              = Point{timed, false, device, stream, timed ? script->now_us : 0, state().recorded++};
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
    const Point last = found->second;
    return reached([=](const Point& point) {
        return point.device == last.device && point.stream == last.stream && point.order <= last.order;
    });
}

TW_EXPORT hipError_t hipEventQuery(hipEvent_t event)
{
    return said(known(event) ? hipSuccess : hipErrorInvalidHandle);
}

// There is no time on an emulated device, but for what a script says. As on a GPU, nobody may ask before having waited.
TW_EXPORT hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto first = state().events.find(start);
    const auto then  = state().events.find(stop);
    if(ms == nullptr || first == state().events.end() || then == state().events.end())
        return said(hipErrorInvalidHandle);
    if(!first->second.timed || !then->second.timed || first->second.device != then->second.device)
        return said(hipErrorNotSupported);
    if(!first->second.reached || !then->second.reached)
        return said(hipErrorNotReady);
    *ms = static_cast<float>((then->second.us - first->second.us) / 1000);
    return hipSuccess;
}
