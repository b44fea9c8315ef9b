// Measure a plan with events. On the emulated device, the times are those of the host: do not compare them.
#include "tensors.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(64).dtype("fp16").layout("rcr");
    const auto plan    = pack.plan(problem);
    example::Tensors tensors(plan->tensors());
    tensors.upload();
    tilewright::TimingOptions options;
    options.warmup = 1; // the defaults are 3 and 20
    options.runs   = 5;
    // All stages of the plan are measured together.
    const tilewright::Timing timing = tilewright::time(*plan, tensors.addresses(), nullptr, options);
    const bool ordered              = 0 < timing.least() && timing.least() <= timing.median();
    std::cout << timing.us.size() << " runs; the least time is " << (ordered ? "at most" : "above") << " the median\n";
    return ordered && timing.us.size() == 5 ? 0 : 1;
}
