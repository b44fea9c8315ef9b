"""Find a missing barrier in a kernel.

Each thread puts its number into LDS and takes that of its neighbour in the next wave. Between the two there must be a
barrier. Without it a GPU may still give the right result, sometimes. Strict mode always gives a wrong one.
"""

import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.building import compile_device, find_toolchain
from tilewright.emulator import EmulatedDevice, Extent, Launch, Memory, Mode

SOURCE = """
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__(256) void neighbour(int* out)
{
    __shared__ int box[256];
    const int me = threadIdx.x;
    box[me] = me;
    BARRIER
    out[blockIdx.x * 256 + me] = box[(me + 64) % 256];
}
"""


def run(barrier: str, mode: Mode) -> bool:
    """Whether the kernel gives what it should."""
    gfx942 = tw.load("gfx942")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.co")
        outcome = compile_device(SOURCE.replace("BARRIER", barrier), gfx942, find_toolchain(), path)
        assert outcome.ok, outcome.log
        device = EmulatedDevice(gfx942, Memory())
        module = device.load(path.read_bytes())
    blocks = 2
    out = device.memory.allocate(blocks * 256 * 4, "out")
    arguments = out.to_bytes(8, "little")
    device.launch(module.kernels["neighbour"], Launch(Extent(blocks), Extent(256), arguments), mode)
    found = np.frombuffer(device.memory.read(out, blocks * 256 * 4), np.int32)
    return bool((found == np.tile((np.arange(256) + 64) % 256, blocks)).all())


for barrier in ("__syncthreads();", ""):
    for mode in (Mode.FAST, Mode.STRICT):
        right = run(barrier, mode)
        verdict = "right" if right else "WRONG"
        print(f"{'with' if barrier else 'without'} barrier, {mode.value:6}: {verdict}")
        assert right or not barrier
