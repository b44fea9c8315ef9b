"""Trace the launches of a problem that needs several kernels.

`recording` has one entry for each launch of the `with` block, in order: its grid, its work-groups and its counters. The
gradient of attention takes three kernels, and one more clears the sums of dq.
"""

import numpy as np

import tilewright as tw

same = {"mode": "batch", "dtype": "fp16"}
tile = "16x64x64x16x64x16x32x64x64/1x4x1x4x1x1x1x4x1/16x16x32x16x16x16x16x16x32"
configs = [
    tw.fmha.config(family="dot_do_o", pipeline="dot_do_o", block="64x128", pad_q=True, pad_hdim_v=1, **same),
    tw.fmha.config(family="dq_dk_dv", pipeline="kr_ktr_vr_iglp", tile=tile, pad_hdim_q=8, pad_hdim_v=8, **same),
    tw.fmha.config(family="convert_dq", pipeline="convert_dq", block="128x32x64x128", pad_q=True, pad_hdim_q=1, **same),
]
registry = tw.build(configs, arch="gfx942")
problem = tw.fmha.Problem(family="backward", dtype="fp16", heads=2, seqlen_q=130, hdim_q=64)
rng = np.random.default_rng(0)
q, k, v, o, d_o = (rng.standard_normal((1, 130, 2, 64)).astype(np.float16) for _ in range(5))
lse = np.zeros((1, 2, 130), np.float32)

device = tw.Device("emulated:gfx942")
with device, device.recording() as launches:
    plan = registry.plan(problem)
    registry.run(problem, q / 8, k, v, o, lse, d_o)
stages = iter(plan.stages)
for launch in launches:
    name = "clear dq" if "clear" in launch.kernel else next(stages).problem.family
    grid = f"{launch.grid.x} × {launch.grid.y} × {launch.grid.z}"
    executed = sum(launch.counters.instructions.values())
    print(f"{name:10} grid {grid}, {launch.block.x} threads, {executed:,} instructions")
for tensor in plan.intermediates:
    print("between:", tensor)
assert sum(launch.counters.matrix_flops for launch in launches) >= problem.flops
