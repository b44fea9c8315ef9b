"""The number of source files that the first run of a GEMM goes through: those that you open to follow one call.

A file counts if at least one of its functions is called while a registry with one built kernel is created and runs its
first problem, in a new process, with NumPy arrays on an emulated device. What an import executes does not count, nor do
methods that `dataclasses` generates: they are not in a file. The emulator's own files never count: on a GPU, AMD's HIP
library takes their place. Files that only the emulator calls, to find its compiler and its library, are counted apart.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from built_kernels import built, with_store
from tilewright.ops import parse_kernel

pytestmark = pytest.mark.compile

MOST = 45  # one of them has the fit rules that GEMM shares with other ops
MOST_WITH_EMULATOR = 61
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
package = Path(tw.__file__).parent
files, importing = {}, 0  # file → whether the run itself calls it; modules that are being imported

def is_emulator(frame):
    return Path(frame.f_code.co_filename).is_relative_to(package / "emulator")

def is_called_by_emulator(frame):
    while frame := frame.f_back:
        if is_emulator(frame):
            return True
    return False

def record(frame, event, _):
    global importing
    file = frame.f_code.co_filename
    if frame.f_code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and not files.get(file) and Path(file).is_relative_to(package):
        if not is_emulator(frame):
            files[file] = not is_called_by_emulator(frame)

sys.setprofile(record)
result = Registry((kernel,), {kernel: artifact}).run(problem, a, b, device="emulated:gfx942")
sys.setprofile(None)
assert (result == 64).all()
print(json.dumps({str(Path(file).relative_to(package)): direct for file, direct in sorted(files.items())}))
"""


def test_the_first_run_of_a_gemm_goes_through_few_files() -> None:
    (artifact,) = built([parse_kernel(KERNEL)])
    command = (sys.executable, "-c", PROGRAM, KERNEL, artifact.key)
    ran = subprocess.run(command, capture_output=True, text=True, env=with_store(), timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr

    files = json.loads(ran.stdout)
    direct = [file for file, is_direct in files.items() if is_direct]

    assert {file for file in list_documented_files() if not file.startswith("emulator/")} == {*direct}
    assert len(direct) <= MOST, f"{len(direct)} files, at most {MOST}:\n" + "\n".join(direct)
    others = sorted({*files} - {*direct})
    told = f"{len(files)} files, at most {MOST_WITH_EMULATOR}. Only the emulator calls:\n"
    assert len(files) <= MOST_WITH_EMULATOR, told + "\n".join(others)


def list_documented_files() -> set[str]:
    """The Python files in the first table of docs/architecture.md's walk."""
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| step | file | in it |")[2].partition("\n\n")[0]
    return set(re.findall(r"`([\w/]+\.py)`", "".join(row.split(" | ")[1] for row in table.splitlines()[2:])))
