// What the entry points for kernels share.
#ifndef TILEWRIGHT_STAND_IN_KERNELS_HPP
#define TILEWRIGHT_STAND_IN_KERNELS_HPP

#include "state.hpp"

namespace stand_in {

inline std::atomic<uint64_t> next_image{1};

inline bool find_stub(const void* stub, Function* function)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    const auto found = state().stubs.find(stub);
    if(found == state().stubs.end())
        return false;
    *function = found->second;
    return true;
}

inline bool find_function(hipFunction_t handle, Function* function)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    if(state().functions.count(handle) == 0)
        return false;
    *function = *reinterpret_cast<const Function*>(handle);
    return true;
}

inline LaunchRequest request_of(int device, const Function& function, dim3 grid, dim3 block, size_t dynamic_lds)
{
    LaunchRequest request{};
    request.device      = device;
    request.image       = function.image.number;
    request.data        = function.image.data;
    request.kernel      = function.kernel.c_str();
    request.grid[0]     = grid.x;
    request.grid[1]     = grid.y;
    request.grid[2]     = grid.z;
    request.block[0]    = block.x;
    request.block[1]    = block.y;
    request.block[2]    = block.z;
    request.dynamic_lds = dynamic_lds;
    return request;
}

// The work of a launch that is done when a graph is launched (kernels.cpp).
hipError_t make_launch(const LaunchRequest& request, Work* work);

} // namespace stand_in

#endif
