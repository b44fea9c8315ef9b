// Convolve lines, with a stride. The number of sizes in `input_size` is the number of dimensions.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::grouped_conv::Problem()
                     .direction("forward").n(2).c(5).k(7).input_size({31}).filter_size(3).stride(2).pad(1)
                     .dtype("fp16");
    const auto plan = pack.plan(problem);
    std::cout << "a line of 31 elements becomes one of " << plan->tensors()[2].shape[1] << '\n';
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);

    example::Array &input = tensors["input"], &weight = tensors["weight"], expected = tensors.zeros_like("output");
    example::visit_products(input, weight, expected, 2, 1, [&](std::size_t x, std::size_t tap, std::size_t y) {
        expected.values[y] += input.values[x] * weight.values[tap];
    });
    return example::compare(tensors["output"], expected, 0);
}
