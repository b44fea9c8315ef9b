// What the entry points for memory share. Every access goes to Python, which has the memory. Device addresses are
// addresses of this process, so pinned and managed memory is the device's, too.
#ifndef TILEWRIGHT_STAND_IN_MEMORY_HPP
#define TILEWRIGHT_STAND_IN_MEMORY_HPP

#include "state.hpp"

#include <cstring>
#include <iterator>

namespace stand_in {


// Fills and copies take time where a script says so.
inline void passed(int device)
{
    if(Script* const script = script_of(device))
        script->now_us += script->other_us;
}

inline bool is_host_visible(const void* address)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto& ranges = state().host_visible;
    const auto at      = reinterpret_cast<uintptr_t>(address);
    auto after         = ranges.upper_bound(at);
    return after != ranges.begin() && at - std::prev(after)->first < std::prev(after)->second;
}

// Memory that host and device see may be called either in the direction of a copy.
inline hipMemcpyKind direction_of(const void* target, const void* source, hipMemcpyKind stated)
{
    const bool either = is_host_visible(target) || is_host_visible(source);
    return either && stated <= hipMemcpyDefault ? hipMemcpyDefault : stated;
}

inline hipError_t allocate_visible(void** address, size_t bytes)
{
    const hipError_t status = hipMalloc(address, bytes);
    if(status == hipSuccess && *address != nullptr)
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        state().host_visible[reinterpret_cast<uintptr_t>(*address)] = bytes;
    }
    // The host may write it without a call, so its bytes count as written.
    return status != hipSuccess || bytes == 0 ? status : ask(&Callbacks::fill, current_device, *address, bytes, 0, bytes, size_t{1});
}

inline hipError_t free_any(void* address)
{
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        state().host_visible.erase(reinterpret_cast<uintptr_t>(address));
    }
    return address == nullptr ? hipSuccess : ask(&Callbacks::release, current_device, address);
}

inline hipError_t range_of(const void* address, AllocationRange* range)
{
    *range = AllocationRange{};
    return ask(&Callbacks::range, current_device, address, range);
}

inline hipError_t copy_bytes(void* target, const void* source, size_t bytes, hipMemcpyKind direction)
{
    if(const hipError_t status = earlier_fault(current_device); status != hipSuccess)
        return status;
    passed(current_device);
    return bytes == 0 ? hipSuccess
                      : ask(&Callbacks::copy, current_device, target, source, bytes,
                            static_cast<int>(direction_of(target, source, direction)));
}

inline hipError_t copy_rows(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                     size_t height, hipMemcpyKind direction)
{
    if(height > 1 && (width > target_pitch || width > source_pitch))
        return said(hipErrorInvalidPitchValue);
    hipError_t status = hipSuccess;
    for(size_t row = 0; row < height && status == hipSuccess; ++row)
        status = copy_bytes(static_cast<char*>(target) + row * target_pitch,
                      static_cast<const char*>(source) + row * source_pitch, width, direction);
    return status;
}

// Work in a stream: recorded if the stream is captured, else done.
template <typename Do>
hipError_t in_stream(const char* call, hipStream_t stream, Do work)
{
    hipError_t status = known(stream);
    if(status != hipSuccess)
        return status;
    if(recorded(call, stream, &status))
    {
        if(status == hipSuccess)
            capture.work.emplace_back(work);
        return status;
    }
    return work();
}

template <typename Value>
hipError_t set_values(const char* call, hipDeviceptr_t target, Value value, size_t count, hipStream_t stream)
{
    return in_stream(call, stream, [=] {
        AllocationRange range;
        const hipError_t status = range_of(target, &range);
        if(status != hipSuccess || count == 0)
            return status;
        const uint64_t offset = reinterpret_cast<uintptr_t>(target) - range.start;
        if(offset >= range.bytes || count > (range.bytes - offset) / sizeof(Value))
            return said(hipErrorInvalidValue);
        for(size_t i = 0; i < count; ++i)
            std::memcpy(static_cast<char*>(target) + i * sizeof(Value), &value, sizeof(Value));
        return hipSuccess;
    });
}

constexpr size_t PITCH = 256; // what rows of hipMallocPitch are a multiple of

} // namespace stand_in

#endif
