"""Kernels that are never built, and what stands for their artifacts."""

from __future__ import annotations

import tilewright as tw
from tilewright.base.digest import digest_value
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.ops.kernel import Kernel

KERNELS = tuple(
    tw.kernel_of(
        tw.gemm.config(
            variant="standard",
            dtype=dtype,
            layout="rcr",
            block=block,
            waves=(2, 2, 1),
            mma=(32, 32, 16),
            pipeline=pipeline,
            scheduler="intrawave",
            epilogue="cshuffle",
        ),
        arch,
    )
    for arch in ("gfx942", "gfx90a")
    for dtype in ("fp16", "bf16")
    for block in ((128, 128, 32), (64, 64, 32))
    for pipeline in ("compv3", "mem")
)


def artifact(store: Store, kernel: Kernel, salt: str = "") -> Artifact:
    """An entry of the store with the kernel's name and a library that nobody loads."""
    return store.put(digest_value([kernel.slug, salt]), {"kernel.so": salt.encode() or b"x"}, {"slug": kernel.slug})


def failure(kernel: Kernel, log: str = "error: no") -> Failure:
    return Failure(digest_value([kernel.slug, log]), log, {"slug": kernel.slug, "errors": [log]})
