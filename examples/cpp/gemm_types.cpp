// One problem in three types. A kernel of another type is never chosen.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(64);
    int wrong          = 0;
    for(const auto& [dtype, layout] : {std::pair("fp32", "rcr"), std::pair("fp16", "rcr"), std::pair("bf16", "rrr")})
    {
        // Setters change a problem, so change a copy.
        const auto plan = pack.plan(tilewright::gemm::Problem(problem).dtype(dtype).layout(layout));
        const auto& kernel = plan->stages().front().kernel;
        std::cout << kernel.slug() << ": sums in " << kernel.field("dtype_acc") << '\n';
        example::Tensors tensors(plan->tensors(), 0.5);
        tensors.run(*plan);
        // Sums are multiples of 1/4 up to 64: bf16 has 8 bits for them, so it rounds by up to 1/4.
        const double limit = std::string(dtype) == "bf16" ? 0.25 : 0;
        const auto expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
        wrong += example::compare(tensors["c"], expected, limit);
    }
    return wrong;
}
