// Numbers of 8 bits: fp8 (3 bits of fraction) times bf8 (2 bits), with a result in fp16.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    // `dtype` sets all types at once; dtype_a, dtype_b and dtype_c set one of them.
    const auto problem =
        tilewright::gemm::Problem().m(64).n(64).k(128).dtype_a("fp8").dtype_b("bf8").dtype_c("fp16").layout("rcr");
    const auto plan = pack.plan(problem);
    for(const tilewright::Tensor& tensor : plan->tensors())
        std::cout << tensor.name << " is " << tensor.dtype << ", " << tensor.bytes << " bytes\n";
    example::Tensors tensors(plan->tensors(), 0.5); // -1, -1/2, 0, 1/2 and 1 are exact in both types
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
