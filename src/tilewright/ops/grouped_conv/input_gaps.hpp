// Which inputs CK Tile's gradient of the input leaves unwritten.
#ifndef TILEWRIGHT_GROUPED_CONV_INPUT_GAPS_HPP
#define TILEWRIGHT_GROUPED_CONV_INPUT_GAPS_HPP

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace tilewright_grouped_conv {

// Whether the gradients of some inputs along a dimension are not written.
//
// A GEMM computes the inputs h * stride + tap * dilation - left_pad, for one tap below `taps` and all h from `begin` to
// `end` (transform_conv_bwd_data_to_gemm.hpp: IdxXTilde, IWTildeSliceBegin, IWTildeSliceEnd). These have one remainder
// by the stride, and no two GEMMs have the same. So all inputs are written if each remainder that occurs has a GEMM, and
// if the first and the last input of that remainder are within its range. Each dimension has its own taps and h, and all
// of their combinations are computed: the dimensions can be looked at one by one.
inline bool leaves_gaps_along(int64_t input, int64_t output, int64_t filter, int64_t stride, int64_t dilation,
                              int64_t left_pad)
{
    const int64_t classes = stride / std::gcd(stride, dilation);
    const int64_t taps    = std::min(filter, classes);
    const auto ceil_of    = [&](int64_t value) { return (value + stride - 1) / stride; };
    const int64_t begin   = std::max<int64_t>(0, left_pad - dilation * (classes - 1)) / stride;
    const int64_t end =
        std::min(output + ceil_of(dilation * (filter - 1)), ceil_of(left_pad + input - 1) + 1);
    int64_t written = 0;
    for(int64_t tap = 0; tap < taps; ++tap)
    {
        const int64_t shift = tap * dilation - left_pad;
        const int64_t first = (shift % stride + stride) % stride;
        if(first >= input)
            continue;
        const int64_t last = first + (input - 1 - first) / stride * stride;
        if((first - shift) / stride < begin || (last - shift) / stride >= end)
            return true;
        ++written;
    }
    return written < std::min(stride, input);
}

} // namespace tilewright_grouped_conv

#endif
