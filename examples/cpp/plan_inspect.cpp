// Look at a plan before you run it: its kernels, tensors, memory and expected time. Needs no GPU.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").dtype("fp16").batch(2).heads(4).seqlen_q(1).seqlen_k(512).hdim_q(64)
                     .num_splits(4).mask("bottom_right");
    const auto plan = pack.plan(problem);
    for(const tilewright::Tensor& tensor : plan->tensors())
        std::cout << (tensor.output ? "output " : "input  ") << tensor.name << ": " << tensor.dtype << ", "
                  << tensor.bytes << " bytes\n";
    // Keys are split, so there are two stages: attention over parts, and a kernel that combines them.
    for(const tilewright::Stage& stage : plan->stages())
        std::printf("stage %s: expected %.1f us\n", std::string(stage.kernel.field("family")).c_str(),
                    stage.us.value_or(0));
    for(const tilewright::Tensor& tensor : plan->intermediates())
        std::cout << "between " << tensor.name << ": " << tensor.dtype << ", " << tensor.bytes << " bytes\n";
    std::cout << "memory: " << plan->memory_size() << " bytes\n";
    // A plan is kept: asking again costs a look-up.
    return plan->stages().size() == 2 && plan == pack.plan(problem) ? 0 : 1;
}
