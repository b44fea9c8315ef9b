"""See the kernels that a problem needs, one after another.

A gradient takes three kernels. Each stage is a problem of its own, whose best kernel is chosen by itself. The
others are rejected with reasons.
"""

import tilewright as tw

problem = tw.fmha.Problem(
    family="backward", dtype="bf16", batch=4, heads=16, kv_heads=4, seqlen_q=2048, hdim_q=128, mask="top_left"
)
registry = tw.Registry.of("training", "gfx942")
selection = registry.select(problem, built=False)
for stage in selection.stages:
    best = stage.best
    print(f"{stage.problem.family:10} {best.us:7.1f} µs  {best.kernel.digest}, one of {len(stage)}")
total = sum(stage.best.us for stage in selection.stages)
print(f"{problem.flops / total / 1e6:.0f} TFLOPS expected")

rejected = next(each for each in selection.stages[1].rejected if each.kernel.config.family == "dq_dk_dv")
print("not among them:", rejected.kernel.digest, "because", rejected.reasons[0])
assert [stage.problem.family for stage in selection.stages] == ["dot_do_o", "dq_dk_dv", "convert_dq"]
