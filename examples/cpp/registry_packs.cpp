// Choose among the kernels of several packs.
//
// Shipped kernels in one pack, your own in another: a registry ranks all of them together, and a kernel that is in both
// counts once.
#include "reference.hpp"

int main(int, char** words)
{
    tilewright::Registry registry;
    registry.add(tilewright::Pack::open(words[2], "gfx942"));
    const std::size_t first = registry.size();
    registry.add(tilewright::Pack::open(words[1], "gfx942"));
    std::cout << first << " kernels, then " << registry.size() << '\n';

    // A registry can be filtered by fields. It keeps the libraries open.
    const auto fp32 = registry.filter("gemm", {{"dtype_a", "fp32"}, {"layout", "rcr"}, {"variant", "standard"}});
    std::cout << fp32.size() << " of them multiply fp32 in the layout rcr\n";
    const auto plan = fp32.plan(tilewright::gemm::Problem().m(33).n(65).k(18).dtype("fp32").layout("rcr"));
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
