// Opens a pack, lists its kernels, and asks which of them computes a few problems fastest. Needs no GPU.
//
//   choose <folder of the pack> <GPU>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>

#include <tilewright/gemm.h>
#include <tilewright/tilewright.hpp>

namespace {

struct Problem
{
    std::string_view dtype;
    std::int64_t m, n, k;
};

// C = A * B with A row-major, B column-major and C row-major, all of them dense. The pointers come later, for run.
tw_gemm_args arguments_of(const Problem& problem)
{
    auto args     = tilewright::make_args<tw_gemm_args>();
    args.m        = problem.m;
    args.n        = problem.n;
    args.k        = problem.k;
    args.stride_a = problem.k;
    args.stride_b = problem.k;
    args.stride_c = problem.n;
    args.k_batch  = 1;
    args.batch    = 1;
    return args;
}

// The arguments tell sizes and strides. Types, layouts and what else a kernel computes are in its config.
bool computes(const tilewright::Kernel& kernel, const Problem& problem)
{
    return kernel.field("dtype_a") == problem.dtype && kernel.field("dtype_b") == problem.dtype &&
           kernel.field("layout") == "rcr" && kernel.field("variant") == "standard" &&
           kernel.field("elementwise") == "PassThrough";
}

// Why no kernel can: what the last one of the right type and layout says.
std::string refusal(const tilewright::Pack& pack, const tw_gemm_args& args, const Problem& problem)
{
    std::string said = "no kernel for this type and layout";
    pack.find_first("gemm", [&](const tilewright::Kernel& candidate) {
        if(computes(candidate, problem) && !candidate.supports(args))
            said = candidate.message();
        return false;
    });
    return said;
}

void choose(const tilewright::Pack& pack, const Problem& problem)
{
    const tw_gemm_args args = arguments_of(problem);
    std::cout << problem.dtype << ' ' << problem.m << 'x' << problem.n << 'x' << problem.k << ": ";
    const auto choices =
        pack.ranked(args, [&](const tilewright::Kernel& candidate) { return computes(candidate, problem); });
    if(choices.empty())
    {
        std::cout << "none (" << refusal(pack, args, problem) << ")\n";
        return;
    }
    const tilewright::Choice& first = choices.front();
    std::cout << first.kernel.slug() << ", the first of " << choices.size();
    if(first.us)
        std::cout << ", should take " << *first.us << " us";
    std::cout << ", workspace " << first.kernel.workspace_size(args) << " bytes\n";
    // With a GPU: set args.a, args.b and args.c to device memory, then first.kernel.run(args, stream).
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
        for(const Problem& problem : {Problem{"fp16", 256, 256, 128}, Problem{"fp16", 256, 250, 128},
                                      Problem{"fp32", 256, 256, 128}})
            choose(pack, problem);
    }
    catch(const tilewright::Error& error)
    {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
