// Add a matrix to the product before it is stored: C = A * B + D, in one kernel.
//
// A problem has up to 8 such tensors, and an operation that combines them with the product. Like types, the operation
// is a fact of the kernel.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    const auto problem =
        tilewright::gemm::Problem().m(64).n(48).k(32).dtype("fp32").layout("rcr").num_d(1).elementwise("MultiDAdd");
    const auto plan = pack.plan(problem);
    std::cout << "run takes";
    for(const tilewright::Tensor& tensor : plan->tensors())
        std::cout << ' ' << tensor.name;
    std::cout << '\n';
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);

    example::Array expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
    for(std::int64_t m = 0; m < 64; ++m)
        for(std::int64_t n = 0; n < 48; ++n)
            expected.at({m, n}) += tensors["d0"].at({m, n});
    return example::compare(tensors["c"], expected, 0);
}
