// Use measured times: a pack can contain a table of the fastest kernels.
//
// The second pack was made with `registry.with_tuned("tuned.json")`. For exactly the problems of the table, the
// measured kernel is chosen; for all others, the estimates decide.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto plain = tilewright::Pack::open(words[1], "gfx942"), tuned = tilewright::Pack::open(words[2], "gfx942");
    const auto same  = [&](std::int64_t size) {
        const auto problem = tilewright::gemm::Problem().m(size).n(size).k(size).dtype("fp16").layout("rcr");
        // The first pack has more kernels, so only those that both have are compared.
        const auto both = [&](const tilewright::Kernel& kernel) { return tuned.find(kernel.slug()).has_value(); };
        const auto one = plain.best(problem, both), other = tuned.best(problem);
        std::printf("%4d: %s\n      %s, %.1f us\n", static_cast<int>(size), std::string(one->slug()).c_str(),
                    std::string(other->slug()).c_str(), tuned.ranked(problem).front().us.value_or(0));
        return one->slug() == other->slug();
    };
    const bool measured = same(256), estimated = same(512);
    return !measured && estimated ? 0 : 1;
}
