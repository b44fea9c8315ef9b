// Prefer some kernels to all others, whatever their estimates are.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto problem = tilewright::gemm::Problem().m(256).n(256).k(128).dtype("fp16").layout("rcr");
    tilewright::Registry registry(tilewright::Pack::open(words[2], "gfx942"));
    const auto ranked = registry.ranked(problem);
    std::cout << "by estimate: " << ranked.front().kernel.slug() << '\n';

    // Kernels have priority 0. Those of a higher one come first; the estimate decides among equals.
    const tilewright::Kernel last = ranked.back().kernel;
    registry.set_priority(1, [&](const tilewright::Kernel& kernel) { return kernel == last; });
    std::cout << "by priority: " << registry.best(problem)->slug() << '\n';

    // A whole pack can have a priority, too: all its kernels come before that single one.
    registry.add(tilewright::Pack::open(words[1], "gfx942"), 2);
    std::cout << "by pack:     " << registry.best(problem)->slug() << '\n';
    return ranked.front().kernel != last && registry.plan(problem)->stages().front().kernel != last ? 0 : 1;
}
