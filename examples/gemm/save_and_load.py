"""Keep a registry as a JSON file.

The file has the names of kernels, the keys of their builds, failures and priorities. The built libraries stay in the
store, so loading compiles nothing.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw

kernels = tw.gemm.space(
    variant="standard", dtype="fp32", layout=["rrr", "rcr"], block=(32, 32, 16),
    waves=(2, 2, 1), mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave",
    epilogue="default", pad_m=True, pad_n=True, pad_k=True,
)  # fmt: skip
built = tw.build(kernels, arch="gfx942")
built = built.with_priority(built.find(layout="rrr"), 5)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "registry.json")
    built.save(path)
    print("keys of the file:", ", ".join(json.loads(path.read_text())))
    loaded = tw.Registry.load(path)

print(repr(loaded))
assert loaded == built
problem = tw.gemm.Problem(m=20, n=20, k=20, dtype="fp32", layout="rrr")
a = np.eye(20, dtype=np.float32)
assert (loaded.run(problem, a, a, device="emulated:gfx942") == a).all()
