"""Estimate into how many parts a long cache should be divided.

One new token does not fill a GPU: each head is a work-group or less. More parts use more of it, until combining them
costs more than it saves. The estimate needs neither a GPU nor a built kernel.
"""

import tilewright as tw

registry = tw.Registry.of("decode", "gfx942")
times = {}
for splits in (1, 4, 8, 16, 32, 64):
    problem = tw.fmha.Problem(
        family="forward", dtype="fp16", batch=1, heads=32, kv_heads=8, seqlen_q=1,
        seqlen_k=16384, hdim_q=128, mask="bottom_right", num_splits=splits,
    )  # fmt: skip
    stages = registry.select(problem, built=False).stages
    times[splits] = sum(stage.best.us for stage in stages)
    print(f"{splits:2} parts: {times[splits]:6.1f} µs in {len(stages)} kernels")
best = min(times, key=times.get)
print(f"best: {best} parts, {times[1] / times[best]:.1f} times as fast as one")
assert best > 1
