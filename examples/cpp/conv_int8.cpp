// Convolve whole numbers of 8 bits; the sums have 32 bits and are exact.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::grouped_conv::Problem()
                     .direction("forward").n(1).c(16).k(16).input_size({8, 8}).filter_size(3).pad(1).dtype("int8");
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 50); // up to 100, so products have up to 14 bits
    tensors.run(*plan);

    example::Array &input = tensors["input"], &weight = tensors["weight"], expected = tensors.zeros_like("output");
    example::visit_products(input, weight, expected, 1, 1, [&](std::size_t x, std::size_t tap, std::size_t y) {
        expected.values[y] += input.values[x] * weight.values[tap];
    });
    return example::compare(tensors["output"], expected, 0);
}
