// Convolve images with filters.
//
// Tensors are channels-last: input (n, h, w, g, c), weight (g, k, y, x, c), output (n, h, w, g, k). The channels of a
// problem are those of all groups.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::grouped_conv::Problem()
                     .direction("forward").n(2).c(16).k(64).input_size({8, 6}).filter_size(3).pad(1).dtype("fp16");
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);

    example::Array &x = tensors["input"], &w = tensors["weight"], y = tensors.zeros_like("output");
    example::visit_products(x, w, y, 1, 1, [&](std::size_t i, std::size_t j, std::size_t o) {
        y.values[o] += x.values[i] * w.values[j];
    });
    return example::compare(tensors["output"], y, 0);
}
