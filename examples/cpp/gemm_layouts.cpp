// Matrices in row-major and column-major order.
//
// A layout has a letter for each of A, B and C: r for rows, c for columns. It is a fact of the kernel: each of these
// problems gets another one.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    int wrong       = 0;
    for(const char* layout : {"rcr", "rrr", "crr", "ccr"})
    {
        const auto plan = pack.plan(tilewright::gemm::Problem().m(48).n(40).k(32).dtype("fp32").layout(layout));
        const auto a    = plan->tensors()[0]; // shapes are those of the matrices, strides tell the order in memory
        std::cout << layout << ": a has " << a.shape[0] << " x " << a.shape[1] << " elements, strides " << a.strides[0]
                  << " and " << a.strides[1] << '\n';
        example::Tensors tensors(plan->tensors());
        tensors.run(*plan);
        const auto expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
        wrong += example::compare(tensors["c"], expected, 0);
    }
    return wrong;
}
