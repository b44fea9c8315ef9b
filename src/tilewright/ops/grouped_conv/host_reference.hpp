// Convolutions and their gradients on the host, in double precision: the reference of `tilewright::verify`.
#ifndef TILEWRIGHT_GROUPED_CONV_REFERENCE_HPP
#define TILEWRIGHT_GROUPED_CONV_REFERENCE_HPP

#include "grouped_conv.hpp"
#include "verify.hpp"

namespace tilewright {
namespace detail {

// The next index of a shape; false after the last.
inline bool advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape)
{
    for(std::size_t i = shape.size(); i-- > 0; index[i] = 0)
        if(++index[i] < shape[i])
            return true;
    return false;
}

} // namespace detail

// All three directions add the same products: each of an input, a weight and an output. The one that is computed gets
// the sums of the products of the other two. Tensors are (n, size …, g, c), (g, k, size …, c) and (n, size …, g, k).
inline void compute_reference(const tw_grouped_conv_problem& problem, std::vector<HostTensor>& tensors)
{
    const bool data = problem.direction == TW_GROUPED_CONV_PROBLEM_DIRECTION_BACKWARD_DATA;
    const bool weights = problem.direction == TW_GROUPED_CONV_PROBLEM_DIRECTION_BACKWARD_WEIGHT;
    HostTensor& input  = find_tensor(tensors, data ? "grad_input" : "input");
    HostTensor& weight = find_tensor(tensors, weights ? "grad_weight" : "weight");
    HostTensor& output = find_tensor(tensors, data || weights ? "grad_output" : "output");
    const auto dimensions = static_cast<std::size_t>(problem.input_size.count);
    const auto at = [](const tw_extents& extents, std::size_t i) { return extents.values[extents.count == 1 ? 0 : i]; };
    const std::vector<std::int64_t> taps(weight.about.shape.begin() + 2, weight.about.shape.end() - 1);
    std::vector<std::int64_t> y(output.about.shape.size());
    do
    {
        std::vector<std::int64_t> tap(dimensions);
        do
        {
            std::vector<std::int64_t> x{y[0]}, w{y[dimensions + 1], y[dimensions + 2]};
            bool inside = true;
            for(std::size_t i = 0; i < dimensions; ++i)
            {
                x.push_back(y[i + 1] * at(problem.stride, i) + tap[i] * at(problem.dilation, i) - at(problem.left_pad, i));
                w.push_back(tap[i]);
                inside = inside && x.back() >= 0 && x.back() < input.extent(i + 1);
            }
            x.push_back(y[dimensions + 1]);
            const std::size_t first_x = inside ? input.place(x) : 0, first_w = weight.place(w), place = output.place(y);
            for(std::size_t c = 0; inside && c < static_cast<std::size_t>(input.about.shape.back()); ++c)
            {
                double &of_x = input.values[first_x + c], &of_w = weight.values[first_w + c], &of_y = output.values[place];
                if(data)
                    of_x += of_w * of_y;
                else if(weights)
                    of_w += of_x * of_y;
                else
                    of_y += of_x * of_w;
            }
        } while(detail::advance(tap, taps));
    } while(detail::advance(y, output.about.shape));
}

} // namespace tilewright

#endif
