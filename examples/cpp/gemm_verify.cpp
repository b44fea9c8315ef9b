// Run every kernel of a pack that supports a problem, and compare the results with the host's.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(128).n(128).k(64).dtype("fp16").layout("rcr");
    int wrong          = 0;
    for(const tilewright::Choice& choice : pack.ranked(problem)) // the fastest first
    {
        // A filter decides which kernels may be chosen: here exactly one.
        const auto plan = pack.plan(problem, [&](const tilewright::Kernel& kernel) { return kernel == choice.kernel; });
        if(!plan->preparations().empty()) // see gemm_preshuffle.cpp
            continue;
        std::cout << choice.kernel.slug() << '\n';
        example::Tensors tensors(plan->tensors());
        tensors.run(*plan);
        // The inputs are small whole numbers: all sums are exact in fp16, so no error is allowed.
        const auto expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
        wrong += example::compare(tensors["c"], expected, 0);
    }
    return wrong;
}
