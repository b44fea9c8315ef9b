// Opens a pack, lists its kernels, and asks which of them computes a few problems fastest. Needs no GPU.
//
//   choose <folder of the pack> <GPU>
#include <iostream>

#include <tilewright/gemm.hpp>

using tilewright::gemm::Problem;

namespace {

// C = A * B with A row-major, B column-major and C row-major, all of them dense.
void choose(const tilewright::Pack& pack, const char* dtype, std::int64_t m, std::int64_t n, std::int64_t k)
{
    const Problem problem = Problem().m(m).n(n).k(k).dtype(dtype).layout("rcr");
    std::cout << dtype << ' ' << m << 'x' << n << 'x' << k << ":\n";
    const auto choices = pack.ranked(problem);
    if(choices.empty())
        for(const tilewright::Kernel& kernel : pack)
            std::cout << "  not " << kernel.slug() << ": " << kernel.why_not(problem)->text() << '\n';
    else
    {
        const auto plan = pack.plan(problem);
        std::cout << "  the first of " << choices.size() << " should take " << choices.front().us.value_or(0)
                  << " us and needs " << plan->memory_size() << " bytes of memory\n  " << plan->text();
        // With a GPU: plan->run({a, b, c}, stream), with addresses in device memory.
    }
}

} // namespace

int main(int count, char** words)
{
    if(count != 3)
    {
        std::cerr << "usage: " << words[0] << " <folder of the pack> <GPU>\n";
        return 2;
    }
    try
    {
        const auto pack = tilewright::Pack::open(words[1], words[2]);
        std::cout << pack.name() << ' ' << pack.version() << " for " << pack.gpu() << ": " << pack.size()
                  << " kernels\n";
        for(const tilewright::Kernel& kernel : pack)
            std::cout << "  " << kernel.slug() << '\n';
        choose(pack, "fp16", 256, 256, 128);
        choose(pack, "fp16", 256, 250, 128);
        choose(pack, "fp32", 256, 256, 128);
    }
    catch(const tilewright::Error& error)
    {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
