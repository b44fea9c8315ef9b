// Split the sum over K among several blocks, for products with few results and a long K.
//
// A product of 16 x 64 has work for one block of most kernels. With `k_batch` parts, each part adds its sums to C with
// atomic operations. Only kernels that were built for it support this.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack  = tilewright::Pack::open(words[1], "gfx942");
    const auto whole = tilewright::gemm::Problem().m(16).n(64).k(512).dtype("fp16").layout("rcr");
    const auto split = tilewright::gemm::Problem(whole).k_batch(2);
    std::cout << pack.ranked(whole).size() << " kernels support the problem, " << pack.ranked(split).size()
              << " of them in two parts\n";
    const auto plan = pack.plan(split);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
