// Products of matrices on the host, in double precision: the reference of `tilewright::verify`.
#ifndef TILEWRIGHT_GEMM_REFERENCE_HPP
#define TILEWRIGHT_GEMM_REFERENCE_HPP

#include "gemm.hpp"
#include "verify.hpp"

namespace tilewright {
namespace detail {

// CK Tile's functions with its rounded constants, as in `ops/gemm/elementwise.py`.
inline double apply_gemm_function(std::int64_t name, double x)
{
    const auto sigmoid = [](double value) { return 1 / (1 + std::exp(-value)); };
    switch(name)
    {
    case TW_GEMM_PROBLEM_ELEMENTWISE_RELU: return std::max(x, 0.0);
    case TW_GEMM_PROBLEM_ELEMENTWISE_GELU: return 0.5 * x * (1 + std::erf(double(0.70710678118f) * x));
    case TW_GEMM_PROBLEM_ELEMENTWISE_FASTGELU:
        return x * sigmoid(2 * x * (double(0.035677f) * x * x + double(0.797885f)));
    case TW_GEMM_PROBLEM_ELEMENTWISE_SILU: return x * sigmoid(x);
    case TW_GEMM_PROBLEM_ELEMENTWISE_SIGMOID: return sigmoid(x);
    case TW_GEMM_PROBLEM_ELEMENTWISE_TANH: return std::tanh(x);
    default: throw Error("there is no host reference for this element-wise operation: use verify_with");
    }
}

} // namespace detail

// C = elementwise(A * B, D…), with any strides, and with a leading dimension for a batch.
inline void compute_reference(const tw_gemm_problem& problem, std::vector<HostTensor>& tensors)
{
    const HostTensor &a = find_tensor(tensors, "a"), &b = find_tensor(tensors, "b");
    HostTensor& c       = find_tensor(tensors, "c");
    const bool batched  = c.about.shape.size() == 3;
    const auto index    = [&](std::int64_t batch, std::int64_t row, std::int64_t column) {
        return batched ? std::vector<std::int64_t>{batch, row, column} : std::vector<std::int64_t>{row, column};
    };
    const std::size_t step_a = static_cast<std::size_t>(a.about.strides.back());
    const std::size_t step_b = static_cast<std::size_t>(b.about.strides[batched ? 1 : 0]);
    for(std::int64_t batch = 0; batch < (batched ? c.extent(0) : 1); ++batch)
        for(std::int64_t m = 0; m < problem.m; ++m)
            for(std::int64_t n = 0; n < problem.n; ++n)
            {
                std::size_t in_a = a.place(index(batch, m, 0)), in_b = b.place(index(batch, 0, n));
                double value = 0;
                for(std::int64_t k = 0; k < problem.k; ++k, in_a += step_a, in_b += step_b)
                    value += a.values[in_a] * b.values[in_b];
                for(std::int64_t i = 0; i < problem.num_d; ++i)
                {
                    const HostTensor& d = find_tensor(tensors, "d" + std::to_string(i));
                    const double each   = d.about.shape.size() == 1 ? d.at({n}) : d.at(index(batch, m, n));
                    value = problem.elementwise == TW_GEMM_PROBLEM_ELEMENTWISE_MULTIDMULTIPLY ? value * each : value + each;
                }
                const bool plain = problem.elementwise == TW_GEMM_PROBLEM_ELEMENTWISE_PASSTHROUGH ||
                                   problem.elementwise == TW_GEMM_PROBLEM_ELEMENTWISE_MULTIDADD ||
                                   problem.elementwise == TW_GEMM_PROBLEM_ELEMENTWISE_MULTIDMULTIPLY;
                c.at(index(batch, m, n)) = plain ? value : detail::apply_gemm_function(problem.elementwise, value);
            }
}

} // namespace tilewright

#endif
