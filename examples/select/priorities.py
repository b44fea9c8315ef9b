"""Put your own order before the estimate: priorities, and a kernel by name.

A priority outweighs every expected time. `find` names the kernels that get it. A tuned table of measured times works
for exact problems instead: see the example of winners.
"""

import tilewright as tw

problem = tw.gemm.Problem(m=2048, n=2048, k=2048, dtype="fp16", layout="rcr")
registry = tw.Registry.of("fp16_rcr_compute", "gfx942")
usual = registry.select(problem, built=False)
print("estimate:", usual.best.kernel.config.pipeline, f"{usual.best.us:.1f} µs")

preferred = registry.with_priority(registry.find(pipeline="compv3"), 10)
changed = preferred.select(problem, built=False)
print("priority:", changed.best.kernel.config.pipeline, f"{changed.best.us:.1f} µs,", changed.best.why)

named = registry.select(problem, kernel=usual.choices[-1].kernel, built=False)
print("by name: ", named.best.kernel.config.pipeline, f"{named.best.us:.1f} µs")
assert changed.best.kernel.config.pipeline == "compv3" and len(named) == 1
