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
    state().events.insert(made);
    *event = static_cast<hipEvent_t>(made);
    return hipSuccess;
}

bool known(hipEvent_t event)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    return state().events.count(event) != 0;
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

TW_EXPORT hipError_t hipStreamSynchronize(hipStream_t stream) { return known(stream); }
TW_EXPORT hipError_t hipStreamQuery(hipStream_t stream) { return known(stream); }
TW_EXPORT hipError_t hipDeviceSynchronize() { return said(is_device(current_device) ? hipSuccess : hipErrorNoDevice); }

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
    return said(known(event) && device_of(stream) >= 0 ? hipSuccess : hipErrorInvalidHandle);
}

TW_EXPORT hipError_t hipEventSynchronize(hipEvent_t event)
{
    return said(known(event) ? hipSuccess : hipErrorInvalidHandle);
}

TW_EXPORT hipError_t hipEventQuery(hipEvent_t event)
{
    return said(known(event) ? hipSuccess : hipErrorInvalidHandle);
}

// There is no time on an emulated device.
TW_EXPORT hipError_t hipEventElapsedTime(float*, hipEvent_t, hipEvent_t) { return said(hipErrorNotSupported); }
