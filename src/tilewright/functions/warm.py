"""Build the kernels of functions for arrays ahead of their first call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import require
from tilewright.dispatch.dispatcher import resolve_arch
from tilewright.functions.kernel_choice import prepare_registries
from tilewright.functions.options import get_options
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.runtime.device import Device


def warm(problems: Iterable[Any], device: Device | Arch | str | None = None) -> tuple[Kernel, ...]:
    """Select and build the kernels for problems together, in parallel, and return them.

        tw.warm([tw.gemm.Problem(m=m, n=4096, k=4096, dtype="bf16", layout="rcr") for m in (1, 16, 256)], "gfx942")

    `device` may also be a GPU or its name; the default is the device of `tilewright.options`. Later calls of functions
    such as `matmul` with these problems find their kernels in the store.
    """
    require("problems", problems, Iterable)
    options = get_options()
    arch = resolve_arch(device if device is not None else options.device, ())
    registries = prepare_registries(list(problems), arch, options)
    return tuple(dict.fromkeys(kernel for registry in registries for kernel in registry.kernels))
