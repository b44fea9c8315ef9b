"""Compute gradients that are the same in every run.

The gradient of the queries is a sum over tiles of keys. Added atomically, its order changes from run to run on a GPU.
With `deterministic=True` each tile writes its own part, and the parts are added in a fixed order, which needs memory.
"""

import numpy as np

import tilewright as tw

same = {"mode": "batch", "dtype": "fp16"}
tile = "16x64x64x16x64x16x32x64x64/1x4x1x4x1x1x1x4x1/16x16x32x16x16x16x16x16x32"
heads = {"pad_hdim_q": 8, "pad_hdim_v": 8}
any_head = {"block": "128x32x64x128", "pad_q": True, "pad_hdim_q": 1}
first = tw.fmha.config(family="dot_do_o", pipeline="dot_do_o", block="64x128", pad_q=True, pad_hdim_v=1, **same)
configs = [
    tw.fmha.config(family=family, pipeline=pipeline, deterministic=fixed, **fields, **same)
    for family, pipeline, fields in (
        ("dq_dk_dv", "kr_ktr_vr_iglp", {"tile": tile, **heads}),
        ("convert_dq", "convert_dq", any_head),
    )
    for fixed in (False, True)
]
registry = tw.build([first, *configs], arch="gfx942")
rng = np.random.default_rng(0)
q, k, v, o, d_o = (rng.standard_normal((1, 130, 1, 64)).astype(np.float16) for _ in range(5))
lse = np.zeros((1, 1, 130), np.float32)

device = tw.Device("emulated:gfx942")
for fixed in (False, True):
    problem = tw.fmha.Problem(
        family="backward", dtype="fp16", seqlen_q=130, hdim_q=64, deterministic=fixed, dq_parts=3 if fixed else 1
    )
    with device, device.recording() as launches:
        dq, dk, dv = registry.run(problem, q / 8, k, v, o, lse, d_o)
    between = {each.tensor.name: each.nbytes for each in registry.plan(problem, device).intermediates}
    atomics = sum(launch.counters.atomics for launch in launches)
    print(f"deterministic {fixed!s:5}: {atomics:6,} atomic additions, parts of dq in {between['dq_acc']:,} bytes")
    assert (atomics == 0) == fixed
