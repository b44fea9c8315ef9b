"""Tensors of more than 2³¹ bytes: the images are shared out to parts of the grid."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tilewright.building.compile_job import LIBRARY
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.dispatch.plan import get_execution
from tilewright.ops import find_op
from tilewright.ops.grouped_conv.problem import Problem

pytestmark = pytest.mark.compile

IMAGES, SIZE, STRIDE = 6, (16384, 12288), 1024
PROBLEM = Problem(direction="forward", n=IMAGES, c=1, k=8, input_size=SIZE, filter_size=1, stride=STRIDE, dtype="fp16")


def test_images_of_more_than_two_gibibytes() -> None:
    op = find_op("grouped_conv")
    tile = {"block": (64, 64, 32), "mma": (16, 16, 32), "vector": (1, 1, 8)}
    kernel = op.make_kernel(op.make_example(tile), "gfx942")
    (artifact,) = built([kernel])
    generator = np.random.default_rng(1)
    image = np.zeros((IMAGES, *SIZE, 1, 1), np.float16)  # pages that nobody touches take no memory
    assert image.nbytes > 2**31
    seen = image[:, ::STRIDE, ::STRIDE]
    seen[...] = generator.integers(-9, 9, seen.shape)
    weight = generator.integers(-9, 9, (1, 8, 1, 1, 1)).astype(np.float16)
    output = np.empty((IMAGES, *PROBLEM.output_size, 1, 8), np.float16)
    with tw.Device("emulated:gfx942") as device:
        functions = bind_functions(device, artifact.verify_file(LIBRARY), kernel)
        call = BoundKernel(device, kernel, functions, get_execution(kernel.op), PROBLEM)
        buffers = [device.allocate(array.nbytes) for array in (image, weight, output)]
        buffers[0].copy_from(image)
        buffers[1].copy_from(weight)
        buffers[2].fill(0xFF)
        call([buffer.address for buffer in buffers], None)
        device.synchronize()
        buffers[2].copy_to(output)
        for buffer in buffers:
            buffer.free()
    assert np.array_equal(output, np.einsum("nhwgc,gkyxc->nhwgk", seen, weight))
