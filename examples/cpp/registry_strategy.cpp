// Decide the order of kernels with your own function.
//
// A strategy gets the kernels that support a problem, with their expected times, and returns them in its order. This
// one prefers a pipeline that you trust, unless it is expected to take more than twice as long as the fastest.
#include "reference.hpp"

std::vector<tilewright::Choice> prefer_compv3(std::vector<tilewright::Choice> choices)
{
    if(choices.empty())
        return choices;
    const double limit = 2 * choices.front().us.value_or(0); // they come by estimate
    const auto trusted = std::find_if(choices.begin(), choices.end(), [&](const tilewright::Choice& choice) {
        return choice.kernel.field("pipeline") == "compv3" && choice.us.value_or(0) <= limit;
    });
    if(trusted != choices.end())
        std::rotate(choices.begin(), trusted, trusted + 1); // to the front
    return choices;
}

int main(int, char** words)
{
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(128).dtype("fp16").layout("rcr");
    tilewright::Registry registry(tilewright::Pack::open(words[2], "gfx942"));
    const auto print = [&](const char* title) {
        std::cout << title << '\n';
        for(const tilewright::Choice& choice : registry.ranked(problem))
            std::printf("  %-6s block %-11s %.1f us\n", std::string(choice.kernel.field("pipeline")).c_str(),
                        std::string(choice.kernel.field("block")).c_str(), choice.us.value_or(0));
    };
    print("by estimate:"); // the default
    registry.set_strategy(tilewright::first_fit);
    print("by name:");
    registry.set_strategy(prefer_compv3);
    print("compv3 first:");
    const auto plan = registry.plan(problem);
    if(plan->stages().front().kernel.field("pipeline") != "compv3")
        return 1;
    example::Tensors tensors(plan->tensors());
    tensors.run(*plan);
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
