// Weights in the order in which matrix instructions read them.
//
// Kernels of the variant `preshuffle` load B directly into registers. B must be reordered once, before the first run;
// the plan tells you so. Without `prepared`, `run` throws instead of computing something else.
#include "reference.hpp"

// B (k x n, column-major) in tiles of `mma_k` x `mma_n`; within a tile, one lane of the wave after the other.
void reorder(example::Array& b, std::int64_t mma_n, std::int64_t mma_k)
{
    const std::int64_t groups = 64 / mma_n, run = mma_k / groups; // a lane has `run` neighbours along k
    const example::Array old  = b;
    std::size_t to            = 0;
    for(std::int64_t tile_n = 0; tile_n < b.extent(1); tile_n += mma_n)
        for(std::int64_t tile_k = 0; tile_k < b.extent(0); tile_k += mma_k)
            for(std::int64_t group = 0; group < groups; ++group)
                for(std::int64_t n = 0; n < mma_n; ++n)
                    for(std::int64_t k = 0; k < run; ++k)
                        b.values[to++] = old.at({tile_k + group * run + k, tile_n + n});
}

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(32).n(128).k(256).dtype("fp16").layout("rcr");
    const auto plan    = pack.plan(problem, [](const auto& kernel) { return kernel.field("variant") == "preshuffle"; });
    for(const auto& [tensor, action] : plan->preparations())
        std::cout << tensor << ": " << action << '\n';
    std::cout << "mma: " << plan->stages().front().kernel.field("mma") << '\n';

    example::Tensors tensors(plan->tensors());
    const example::Array expected = example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c"));
    try
    {
        tensors.run(*plan);
        return 1;
    }
    catch(const tilewright::Error&)
    {
        std::cout << "it does not run before B is prepared\n";
    }
    reorder(tensors["b"], 16, 32); // from the kernel's field `mma`
    tilewright::RunOptions options;
    options.prepared = true;
    tensors.run(*plan, options);
    return example::compare(tensors["c"], expected, 0);
}
