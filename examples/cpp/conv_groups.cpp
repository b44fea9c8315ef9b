// Divide channels into groups: each group of outputs sees one group of inputs only.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::grouped_conv::Problem()
                     .direction("forward").n(1).g(4).c(32).k(64).input_size({6, 6}).filter_size(3).dtype("fp16");
    const auto plan = pack.plan(problem);
    const auto& w   = plan->tensors()[1];
    std::cout << w.shape[0] << " groups, each with " << w.shape[4] << " input and " << w.shape[1]
              << " output channels\n";
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);

    example::Array &input = tensors["input"], &weight = tensors["weight"], expected = tensors.zeros_like("output");
    example::visit_products(input, weight, expected, 1, 0, [&](std::size_t x, std::size_t tap, std::size_t y) {
        expected.values[y] += input.values[x] * weight.values[tap];
    });
    return example::compare(tensors["output"], expected, 0);
}
