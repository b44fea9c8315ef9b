"""The number of source files that the first run of a GEMM goes through: those that you open to follow one call.

A file counts if at least one of its functions is called while a registry with one built kernel is created and runs its
first problem, in a new process, with NumPy arrays on an emulated device. What an import executes does not count, nor do
methods that `dataclasses` generates: they are not in a file. The emulator's files do not count: on a GPU, AMD's HIP
library takes their place.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from built_kernels import built, with_store
from tilewright.ops import parse_kernel

pytestmark = pytest.mark.compile

MOST = 4
KERNEL = (
    "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-9a6900b412ca"
)
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
import tilewright as tw
from tilewright import Registry
from tilewright.building.store.local import Store

slug, key = sys.argv[1:]
kernel, artifact = tw.parse_kernel(slug), Store().get(key)
problem = tw.gemm.Problem(m=128, n=128, k=64, dtype="fp16", layout="rcr")
a, b = np.ones((128, 64), np.float16), np.ones((64, 128), np.float16)
files, importing = set(), 0  # the second: modules that are being imported

def record(frame, event, _):
    global importing
    if frame.f_code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing:
        files.add(frame.f_code.co_filename)

sys.setprofile(record)
result = Registry((kernel,), {kernel: artifact}).run(problem, a, b, device="emulated:gfx942")
sys.setprofile(None)
assert (result == 64).all()
package = Path(tw.__file__).parent
own = [Path(file).relative_to(package) for file in files if Path(file).is_relative_to(package)]
print(json.dumps(sorted(str(file) for file in own if file.parts[0] != "emulator")))
"""


def test_the_first_run_of_a_gemm_goes_through_few_files() -> None:
    (artifact,) = built([parse_kernel(KERNEL)])
    command = (sys.executable, "-c", PROGRAM, KERNEL, artifact.key)
    ran = subprocess.run(command, capture_output=True, text=True, env=with_store(), timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr

    files = json.loads(ran.stdout)

    assert len(files) <= MOST, f"{len(files)} files, at most {MOST}:\n" + "\n".join(files)
    assert {"registry/registry.py", "dispatch/dispatcher.py", "runtime/device.py"} <= {*files}, "the count works"
