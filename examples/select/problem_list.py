"""Choose kernels for a list of problems in a file.

Lists are CSV, JSON, or lines of MIOpenDriver for convolutions. Fields that are the same for all can be passed once.
"""

import tempfile
from pathlib import Path

import tilewright as tw

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "shapes.csv")
    path.write_text("m,n,k\n1,4096,4096\n128,1024,8192\n8192,8192,8192\n")
    problems = tw.read_problems("gemm", path, fixed=[{"dtype": "bf16", "layout": "rcr"}])
    path = Path(folder, "layers.txt")
    path.write_text("MIOpenDriver convbfp16 -n 8 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1\n")
    problems += tw.read_problems("grouped_conv", path, "miopen_driver")

for problem in problems:
    best = tw.select_kernel(problem, "gfx942").best
    print(f"{problem.flops / 1e9:8.2f} GFLOP {best.us:8.1f} µs  {best.kernel.op}, block {best.kernel.config.block}")
assert len(problems) == 4
