// Several products of the same size in one launch.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    const auto plan = pack.plan(tilewright::gemm::Problem().batch(3).m(40).n(33).k(20).dtype("fp32").layout("rcr"));
    const auto c    = plan->tensors().back();
    std::cout << "c has " << c.shape[0] << " matrices of " << c.shape[1] << " x " << c.shape[2] << ", one every "
              << c.strides[0] << " elements\n";
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
