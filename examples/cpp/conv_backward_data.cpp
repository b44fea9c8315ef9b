// The gradient of a convolution's input, for training.
//
// Each product input * weight of the convolution adds grad_output * weight to the gradient of that input.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::grouped_conv::Problem()
                     .direction("backward_data").n(1).c(16).k(32).input_size({8, 8}).filter_size(3).pad(1)
                     .dtype("fp16");
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);

    example::Array &dy = tensors["grad_output"], &w = tensors["weight"], dx = tensors.zeros_like("grad_input");
    example::visit_products(dx, w, dy, 1, 1, [&](std::size_t i, std::size_t j, std::size_t o) {
        dx.values[i] += dy.values[o] * w.values[j];
    });
    return example::compare(tensors["grad_input"], dx, 0);
}
