// Ask a kernel why it does not support a problem, and what to change.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(64).n(248).k(64).dtype("fp16").layout("rcr");
    int not_tiled      = 0;
    for(const tilewright::Kernel& kernel : pack)
    {
        if(kernel.op() != problem.op || kernel.field("variant") != "standard" || kernel.field("dtype_a") != "fp16")
            continue;
        std::cout << "block " << kernel.field("block") << ", " << kernel.field("pipeline") << ": ";
        if(const auto reason = kernel.why_not(problem)) // the first rule that rejects the problem
        {
            std::cout << reason->text() << "\n    " << reason->advice << '\n';
            not_tiled += reason->rule == "n-not-tiled"; // rules have names and codes to decide by
        }
        else
            std::cout << "supports it\n";
    }
    return not_tiled > 0 && pack.best(problem) ? 0 : 1;
}
