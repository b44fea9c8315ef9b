"""Tensors on a device: passed by address and never copied, so they must have the form that the kernel requires."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import TensorError
from tilewright.dispatch.element_types import SIZES, find_array_type, get_torch, to_torch_dtype
from tilewright.dispatch.plan import Stage
from tilewright.dispatch.tensors import View, compute_span, to_view, view_on
from tilewright.ops.execution import Tensor

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


def check_ready(stage: Stage, prepared: Collection[str]) -> None:
    """Require device tensors that are padded and prepared already: that is not done here."""
    if stage.padding is not None:
        raise TensorError(
            f"{stage.kernel.slug} needs padding ({stage.padding}), and device tensors are not copied: allocate padded "
            f"tensors and run {stage.problem}, or pass host arrays"
        )
    for preparation in stage.preparations:
        if preparation.tensor not in prepared:
            raise TensorError(
                f"{stage.kernel.slug} needs {preparation.tensor} prepared ({preparation.what}), and device tensors "
                f"are not changed: prepare it once on the host (plan.stages[0].preparations has the function), "
                f"upload it, and pass prepared=('{preparation.tensor}',)"
            )
    known = {preparation.tensor for preparation in stage.preparations}
    for name in prepared:
        if name not in known:
            raise TensorError(
                f"prepared names {name!r}, but {stage.kernel.slug} needs "
                f"{', '.join(sorted(known)) or 'no tensor'} prepared: its result would be wrong"
            )


def allocate_output(tensor: Tensor, views: Sequence[View | None], device: Device) -> View:
    """Allocate an output: a torch tensor if an input is one, else in a buffer of the device."""
    given = [view for view in views if view is not None]
    dtype = find_array_type(tensor.dtype, device.arch)
    libraries = {view.library for view in given}
    if "torch" in libraries:
        like: Any = next(view.owner for view in given if view.library == "torch")
        kind = to_torch_dtype(dtype)
        return to_view(get_torch().empty_strided(tensor.shape, tensor.strides, dtype=kind, device=like.device))
    if "dlpack" in libraries:
        raise TensorError(f"{tensor.name} cannot be allocated: DLPack has no function for that. Pass out=….")
    buffer = device.allocate(compute_span(tensor.shape, tensor.strides) * SIZES[dtype], tensor.name)
    return view_on(buffer, tensor.shape, dtype, tensor.strides)
