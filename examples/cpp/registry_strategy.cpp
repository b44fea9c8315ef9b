// Decide the order of kernels with your own function.
//
// A strategy gets the kernels that support a problem, with their expected times, and returns them in its order. This
// one prefers small blocks among kernels that are at most twice as slow as the fastest, to leave room for other work.
#include "reference.hpp"

std::vector<tilewright::Choice> prefer_small_blocks(std::vector<tilewright::Choice> choices)
{
    const double limit = choices.empty() ? 0 : 2 * choices.front().us.value_or(0);
    std::stable_sort(choices.begin(), choices.end(), [&](const auto& one, const auto& other) {
        const bool fast = one.us.value_or(0) <= limit, other_fast = other.us.value_or(0) <= limit;
        return fast != other_fast ? fast : fast && one.kernel.field("block") < other.kernel.field("block");
    });
    return choices;
}

int main(int, char** words)
{
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(128).dtype("fp16").layout("rcr");
    tilewright::Registry registry(tilewright::Pack::open(words[2], "gfx942"));
    const auto print = [&](const char* title) {
        std::cout << title << '\n';
        for(const tilewright::Choice& choice : registry.ranked(problem))
            std::printf("  %-10s %.1f us\n", std::string(choice.kernel.field("block")).c_str(), choice.us.value_or(0));
    };
    print("by estimate:"); // the default
    registry.set_strategy(tilewright::first_fit);
    print("by name:");
    registry.set_strategy(prefer_small_blocks);
    print("small blocks first:");
    const auto plan = registry.plan(problem);
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
