// Plan and run in several threads at once. Nothing of a pack changes after it is opened, so nothing must be locked.
#include "reference.hpp"

#include <atomic>

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(32).dtype("fp16").layout("rcr");
    std::atomic<int> wrong{0}, plans{0};
    std::vector<std::thread> threads;
    for(int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            const auto plan = pack.plan(problem); // the same plan in all threads
            plans += plan == pack.plan(problem);
            example::Tensors tensors(plan->tensors());
            tensors.run(*plan);
            const auto expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
            wrong += tensors["c"].values != expected.values;
        });
    for(std::thread& thread : threads)
        thread.join();
    std::cout << threads.size() << " threads, " << wrong << " results are wrong\n";
    return wrong == 0 && plans == 4 ? 0 : 1;
}
