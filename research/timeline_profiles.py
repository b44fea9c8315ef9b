"""Profiles of the measured convolutions: each kernel is built, and runs on the emulated device with a few k-steps."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.emulator.profile import KernelProfile
from tilewright.ops.kernel import Kernel

# Two lengths of the k loop. Both are even: the loop of compv4 has two k-steps.
STEPS = (4, 12)
CHANNELS, FILTERS, IMAGE = 64, 128, (16, 32)


def profile_kernel(kernel: Kernel, steps: int) -> KernelProfile:
    """Return the profile of a small forward convolution with this number of k-steps."""
    width = steps * kernel.config.block.k // CHANNELS  # type: ignore[attr-defined]
    problem = tw.grouped_conv.Problem(
        direction="forward",
        n=1,
        g=1,
        c=CHANNELS,
        k=FILTERS,
        input_size=IMAGE,
        filter_size=(1, width),
        stride=(1, 1),
        pad=(0, width // 2),
        dtype="bf16",
    )
    image = np.zeros((1, *IMAGE, 1, CHANNELS), ml_dtypes.bfloat16)
    filters = np.zeros((1, FILTERS, 1, width, CHANNELS), ml_dtypes.bfloat16)
    registry = tw.build([kernel], arch=kernel.arch, jobs=1)
    device = tw.Device(f"emulated:{kernel.arch}")
    with device, device.emulating(profile=True), device.recording() as launches:
        registry.run(problem, image, filters, kernel=kernel)
    (launch,) = launches
    assert launch.profile is not None
    return launch.profile
