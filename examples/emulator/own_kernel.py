"""Run your own HIP kernel on an emulated GPU.

`tilewright.emulator` runs any code object: it needs no kernel of Tilewright. Arguments are the bytes that the kernel
reads, and memory is that of the emulated device.
"""

import struct
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.building import compile_device, find_toolchain
from tilewright.emulator import EmulatedDevice, Extent, Launch, Memory, MemoryFault, Mode

SOURCE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void scale(float* values, float factor) { values[threadIdx.x] *= factor; }
"""
gpu = tw.load("gfx942")
device = EmulatedDevice(gpu, Memory())
with tempfile.TemporaryDirectory() as folder:
    outcome = compile_device(SOURCE, gpu, find_toolchain(), Path(folder, "scale.co"))
    module = device.load(outcome.path.read_bytes())

values = device.memory.allocate(64 * 4, "values")
device.memory.write(values, np.arange(64, dtype=np.float32).tobytes())
arguments = struct.pack("Qf", values, 0.5)
counters = device.launch(module.kernels["scale"], Launch(Extent(1), Extent(64), arguments), Mode.STRICT)
found = np.frombuffer(device.memory.read(values, 64 * 4), np.float32)
assert (found == np.arange(64) / 2).all()
print(f"{counters.waves} wave, {counters.global_read_bytes} bytes read, {counters.global_write_bytes} written")

try:
    device.launch(module.kernels["scale"], Launch(Extent(1), Extent(65), arguments))
except MemoryFault as fault:
    print(f"one thread more: {fault.name} in wave {fault.place.wave}, lane {fault.place.lane}")
else:
    raise AssertionError("the access outside the allocation was not noticed")
