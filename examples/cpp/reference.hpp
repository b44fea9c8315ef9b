// Results on the host, computed in the simplest way, for comparison. Shared by the examples.
#pragma once

#include "tensors.hpp"

namespace example {

// C = A * B, with a leading dimension for a batch or without.
inline Array multiply(const Array& a, const Array& b, Array c)
{
    const bool batched = c.about.shape.size() == 3;
    const auto index   = [&](std::int64_t batch, std::int64_t row, std::int64_t column) {
        return batched ? std::vector<std::int64_t>{batch, row, column} : std::vector<std::int64_t>{row, column};
    };
    const std::size_t first = batched ? 1 : 0;
    const std::int64_t step = a.about.strides[first + 1], other = b.about.strides[first];
    for(std::int64_t batch = 0; batch < (batched ? c.extent(0) : 1); ++batch)
        for(std::int64_t m = 0; m < c.extent(first); ++m)
            for(std::int64_t n = 0; n < c.extent(first + 1); ++n)
            {
                const double *row = a.row(index(batch, m, 0)), *column = b.row(index(batch, 0, n));
                double sum        = 0;
                for(std::int64_t k = 0; k < a.extent(first + 1); ++k)
                    sum += row[k * step] * column[k * other];
                c.at(index(batch, m, n)) = sum;
            }
    return c;
}

// B (k x n, column-major) for kernels of the variant `preshuffle`: in tiles of `mma_k` x `mma_n`, and within a tile one
// lane of the wave after the other.
inline void reorder(Array& b, std::int64_t mma_n, std::int64_t mma_k)
{
    const std::int64_t groups = 64 / mma_n, run = mma_k / groups; // a lane has `run` neighbours along k
    const Array old = b;
    std::size_t to            = 0;
    for(std::int64_t tile_n = 0; tile_n < b.extent(1); tile_n += mma_n)
        for(std::int64_t tile_k = 0; tile_k < b.extent(0); tile_k += mma_k)
            for(std::int64_t group = 0; group < groups; ++group)
                for(std::int64_t n = 0; n < mma_n; ++n)
                    for(std::int64_t k = 0; k < run; ++k)
                        b.values[to++] = old.at({tile_k + group * run + k, tile_n + n});
}

// The next index of a shape, or false after the last.
inline bool advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape)
{
    for(std::size_t i = shape.size(); i-- > 0; index[i] = 0)
        if(++index[i] < shape[i])
            return true;
    return false;
}

// Calls `visit(x, w, y)` with the places of an input, a weight and an output for every product of a convolution in any
// number of dimensions. Tensors are input (n, size …, g, c), weight (g, k, size …, c) and output (n, size …, g, k).
template <typename Visit>
void visit_products(const Array& input, const Array& weight, const Array& output, std::int64_t stride,
                    std::int64_t pad, const Visit& visit)
{
    const std::size_t dimensions = output.about.shape.size() - 3;
    const std::vector<std::int64_t> taps(weight.about.shape.begin() + 2, weight.about.shape.end() - 1);
    std::vector<std::int64_t> y(output.about.shape.size());
    do
    {
        const std::int64_t group = y[dimensions + 1], k = y[dimensions + 2];
        std::vector<std::int64_t> tap(dimensions);
        do
        {
            std::vector<std::int64_t> x{y[0]}, w{group, k};
            bool inside = true;
            for(std::size_t i = 0; i < dimensions; ++i)
            {
                x.push_back(y[i + 1] * stride + tap[i] - pad);
                w.push_back(tap[i]);
                inside = inside && x.back() >= 0 && x.back() < input.extent(i + 1);
            }
            x.push_back(group);
            for(std::int64_t c = 0; inside && c < input.extent(dimensions + 2); ++c)
            {
                const auto channel = static_cast<std::size_t>(c);
                visit(input.place(x) + channel, weight.place(w) + channel, output.place(y));
            }
        } while(advance(tap, taps));
    } while(advance(y, output.about.shape));
}

// softmax(q * K / sqrt(size)), one probability for each key that the query sees.
inline std::vector<double> find_probabilities(const double* query, const std::vector<const double*>& keys,
                                              std::int64_t size)
{
    std::vector<double> p;
    double sum = 0;
    for(const double* key : keys)
    {
        double score = 0;
        for(std::int64_t i = 0; i < size; ++i)
            score += query[i] * key[i];
        sum += p.emplace_back(std::exp(score / std::sqrt(size)));
    }
    for(double& each : p)
        each /= sum;
    return p;
}

// The result of attention for one query of one head: the mean of the values, weighted by the probabilities of the keys.
inline void attend(const double* query, const std::vector<const double*>& keys,
                   const std::vector<const double*>& values, std::int64_t size, double* result)
{
    const std::vector<double> p = find_probabilities(query, keys, size);
    for(std::size_t t = 0; t < p.size(); ++t)
        for(std::int64_t i = 0; i < size; ++i)
            result[i] += p[t] * values[t][i];
}

} // namespace example
