// Multiply whole numbers of 8 bits; the sums have 32 bits and are exact.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    const auto plan = pack.plan(tilewright::gemm::Problem().m(128).n(64).k(128).dtype("int8").layout("rcr"));
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 50); // up to 100: products have up to 14 bits, sums up to 21
    const auto expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));

    // The only kernel of this pack for int8 reads B in the order of matrix instructions: see gemm_preshuffle.cpp.
    tilewright::RunOptions options;
    options.prepared = true;
    example::reorder(tensors["b"], 32, 16);
    tensors.run(*plan, options);
    return example::compare(tensors["c"], expected, 0);
}
