// Multiply a part of a larger matrix in place, without a copy.
//
// A stride is the number of elements from one row (or column) to the next. Without one, a matrix is dense.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(32).n(64).k(64).dtype("fp16").layout("rcr").stride_a(256);
    const auto plan    = pack.plan(problem);
    // `bytes` goes from the first to the last element, gaps included.
    std::cout << "a has " << 32 * 64 << " elements and spans " << plan->tensors()[0].bytes / 2 << '\n';
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
