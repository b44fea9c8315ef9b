// The gradient of a convolution's weights, for training.
//
// It is a sum over all images and positions, while there are few weights: `k_batch` splits the sum among blocks.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::grouped_conv::Problem()
                     .direction("backward_weight").n(2).c(16).k(32).input_size({8, 8}).filter_size(3).pad(1)
                     .dtype("fp16").k_batch(2);
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);

    example::Array &dy = tensors["grad_output"], &x = tensors["input"], dw = tensors.zeros_like("grad_weight");
    example::visit_products(x, dw, dy, 1, 1, [&](std::size_t i, std::size_t j, std::size_t o) {
        dw.values[j] += x.values[i] * dy.values[o];
    });
    return example::compare(tensors["grad_weight"], dw, 0);
}
