// Compare the results of plans with a reference on the host, element by element.
#include "tensors.hpp"

#include <tilewright/gemm_reference.hpp>
#include <tilewright/grouped_conv_reference.hpp>

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    // Inputs, device memory, the run and the reference are all in `verify`.
    const auto product  = tilewright::gemm::Problem().m(128).n(128).k(64).dtype("fp16").layout("rcr");
    const auto standard = [](const tilewright::Kernel& kernel) { return kernel.field("variant") == "standard"; };
    const auto plan     = pack.plan(product, standard);
    const tilewright::Verification of_product = verify(*plan, product);
    std::cout << plan->stages().front().kernel.slug() << '\n' << of_product.text();

    const auto gradient = tilewright::grouped_conv::Problem()
                              .direction("backward_weight").n(2).c(64).k(32).input_size({10, 10}).filter_size(3).pad(1)
                              .dtype("fp16");
    const tilewright::Verification of_gradient = verify(*pack.plan(gradient), gradient);
    std::cout << of_gradient.text();

    // A reference of your own gets all tensors and fills the outputs. This one is wrong in one element.
    const auto wrong = verify_with(*plan, [&](std::vector<tilewright::HostTensor>& tensors) {
        compute_reference(product.values(), tensors);
        find_tensor(tensors, "c").at({5, 7}) += 1;
    });
    std::cout << "with a wrong reference, " << wrong.outputs.front().wrong << " element differs\n";
    return of_product.passed() && of_gradient.passed() && wrong.outputs.front().wrong == 1 ? 0 : 1;
}
