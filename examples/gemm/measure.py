"""Measure one kernel on one problem.

The result is verified first. On a GPU you get a time, on an emulated device exact counts of the launch, and never the
one for the other.
"""

import tilewright as tw

kernel = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
record = tw.measure(kernel, {"m": 128, "n": 64, "k": 96}, "emulated:gfx942")
print(record.status, record.kind, f"largest error {record.error_ulps:.2f} ulps")
for name in ("matrix_flops", "global_read_bytes", "cache_lines", "bank_conflict_cycles", "barriers"):
    print(f"{name:22} {record.counters[name]:9,}")
assert record.ok and record.times is None
assert record.counters["matrix_flops"] == 2 * 128 * 64 * 96
