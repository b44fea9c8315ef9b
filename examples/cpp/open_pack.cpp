// Open a pack and look at its kernels. Needs no GPU and no HIP.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    std::cout << pack.name() << " for " << pack.gpu() << ": " << pack.size() << " kernels\n";
    std::map<std::string, int> counts;
    for(const tilewright::Kernel& kernel : pack)
        ++counts[std::string(kernel.op())];
    for(const auto& [op, count] : counts)
        std::cout << "  " << count << " of " << op << '\n';

    // A field of a kernel is a fact that it was compiled with.
    const auto small = pack.find_first("gemm", [](const auto& kernel) { return kernel.field("dtype_a") == "fp32"; });
    if(!small)
        return 1;
    std::cout << small->slug() << "\n  block " << small->field("block") << ", pipeline " << small->field("pipeline")
              << '\n';
    // Kernels are found by their slugs, too. An unknown one is an empty result, not an error.
    return pack.find(small->slug()) == small && !pack.find("gemm-unknown") && counts.size() == 3 ? 0 : 1;
}
