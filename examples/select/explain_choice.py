"""See why a kernel is chosen: the expected time of each kernel, and its parts.

Times are estimated from the problem, the kernel and the GPU. No kernel is built, and nothing was measured.
"""

import tilewright as tw

problem = tw.gemm.Problem(m=4096, n=4096, k=4096, dtype="fp16", layout="rcr")
selection = tw.Registry.of("fp16_rcr_compute", "gfx942").select(problem, built=False)
print(f"{len(selection)} kernels support it, {len(selection.rejected)} do not")

for choice in selection.choices[:3]:
    block, pipeline = choice.kernel.config.block, choice.kernel.config.pipeline
    terms = ", ".join(f"{name} {us:.0f}" for name, us in choice.terms.items() if us >= 1)
    print(f"{choice.us:6.1f} µs  {block!s:12} {pipeline:7} {terms}")

best = selection.best
assert best.us == min(choice.us for choice in selection)
print("best:", best)
