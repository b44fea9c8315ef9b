// Weights in the order in which matrix instructions read them.
//
// Kernels of the variant `preshuffle` load B directly into registers. B must be reordered once, before the first run;
// the plan tells you so. Without `prepared`, `run` throws instead of computing something else.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(32).n(128).k(256).dtype("fp16").layout("rcr");
    const auto plan    = pack.plan(problem, [](const auto& kernel) { return kernel.field("variant") == "preshuffle"; });
    for(const auto& [tensor, action] : plan->preparations())
        std::cout << tensor << ": " << action << '\n';
    std::cout << "mma: " << plan->stages().front().kernel.field("mma") << '\n';

    example::Tensors tensors(plan->tensors());
    const example::Array expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
    try
    {
        tensors.run(*plan);
        return 1;
    }
    catch(const tilewright::Error&)
    {
        std::cout << "it does not run before B is prepared\n";
    }
    example::reorder(tensors["b"], 16, 32); // see reference.hpp; the numbers are from the kernel's field `mma`
    tilewright::RunOptions options;
    options.prepared = true;
    tensors.run(*plan, options);
    return example::compare(tensors["c"], expected, 0);
}
