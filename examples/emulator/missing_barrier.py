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


BLOCKS = 2
gfx942 = tw.load("gfx942")
device = EmulatedDevice(gfx942, Memory())
out = device.memory.allocate(BLOCKS * 256 * 4, "out")
expected = np.tile((np.arange(256) + 64) % 256, BLOCKS)

for barrier in ("__syncthreads();", ""):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.co")
        outcome = compile_device(SOURCE.replace("BARRIER", barrier), gfx942, find_toolchain(), path)
        assert outcome.ok, outcome.log
        module = device.load(path.read_bytes())
    for mode in (Mode.FAST, Mode.STRICT):
        launch = Launch(Extent(BLOCKS), Extent(256), out.to_bytes(8, "little"))
        device.launch(module.kernels["neighbour"], launch, mode)
        right = (np.frombuffer(device.memory.read(out, BLOCKS * 256 * 4), np.int32) == expected).all()
        print(f"{'with' if barrier else 'without'} barrier, {mode.value:6}: {'right' if right else 'WRONG'}")
        assert right == bool(barrier) or mode == Mode.FAST
