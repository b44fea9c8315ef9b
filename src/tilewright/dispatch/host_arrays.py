"""Arrays in host memory: converted to the kernel's layout, uploaded, and downloaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.dispatch.launch import BoundKernel, CallSequence, count_bytes
from tilewright.dispatch.plan import Plan, Stage, get_execution
from tilewright.dispatch.tensors import (
    SIZES,
    View,
    compute_span,
    find_array_type,
    get_torch,
    to_torch_dtype,
    to_view,
    view_on,
)
from tilewright.ops.execution import Preparation, Tensor

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.device_objects import Buffer


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


def run_host(
    call: BoundKernel | CallSequence, plan: Plan, asked: Sequence[Tensor], views: Sequence[View | None], stream: Any
) -> list[Any]:
    """Upload the inputs, launch, and download the outputs. Returns the outputs in order when they are complete."""
    device = call.device
    launched = get_execution(plan.stages[0].kernel.op).tensors(plan.launched)
    buffers: list[Buffer] = []
    with ExitStack() as freed:
        for tensor, view in zip(launched, views, strict=True):
            fresh = tensor.output and not tensor.updated
            memory = None if view is None or fresh else to_tensor_bytes(view.to_array(), tensor, plan.preparations)
            size = count_bytes(tensor, device.arch) if memory is None else memory.nbytes
            buffers.append(freed.enter_context(device.allocate(size, tensor.name)))
            if memory is not None:
                buffers[-1].copy_from(memory, stream)
        call([buffer.address for buffer in buffers], stream)
        as_torch = any(view is not None and view.library == "torch" for view in views)
        return [
            _Download(buffer, wanted, tensor, find_array_type(tensor.dtype, device.arch), stream).copy_into(
                view, as_torch
            )
            for buffer, wanted, tensor, view in zip(buffers, asked, launched, views, strict=True)
            if tensor.output
        ]


def to_tensor_bytes(array: Any, tensor: Tensor, preparations: Sequence[Preparation] = ()) -> Any:
    """The bytes of an array in a tensor's layout, padded with zeros and prepared. Gaps have undefined contents."""
    import numpy as np  # noqa: PLC0415  (costs start-up time)

    for preparation in preparations:
        if preparation.tensor == tensor.name:
            filled = _pad_array(array, tensor.shape)
            array = preparation.apply(filled)
            if array.shape != tensor.shape:
                raise InvalidValueError(
                    f"preparing {tensor.name} ({preparation.what}) returned shape {array.shape}, must be {tensor.shape}"
                )
    elements = compute_span(tensor.shape, tensor.strides)
    size = array.dtype.itemsize
    steps = tuple(stride * size for stride in tensor.strides)
    if array.shape == tensor.shape and array.strides == steps:
        # Viewed as integers: as_strided identifies types by letter, and types of ml_dtypes share one.
        plain = array.view(f"u{size}")
        return np.lib.stride_tricks.as_strided(plain, (elements,), (size,), writeable=False).view(np.uint8)
    flat = np.zeros(elements * size, np.uint8)
    _take_region(np.ndarray(tensor.shape, array.dtype, flat, strides=steps), array.shape)[...] = array
    return flat


def _pad_array(array: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np  # noqa: PLC0415  (costs start-up time)

    if array.shape == shape:
        return array
    larger = np.zeros(shape, array.dtype)
    _take_region(larger, array.shape)[...] = array
    return larger


def _take_region(array: Any, shape: tuple[int, ...]) -> Any:
    """The part of this shape at the beginning of an array."""
    return array[tuple(slice(extent) for extent in shape)]


@dataclass(frozen=True, slots=True)
class _Download:
    """The download of an output: it waits for the stream, and cuts the result to the requested shape."""

    buffer: Buffer
    asked: Tensor
    launched: Tensor
    dtype: str
    stream: Any

    def copy_into(self, out: View | None, as_torch: bool) -> Any:
        """Copy the output into `out`, or into a new array or torch tensor."""
        import numpy as np  # noqa: PLC0415  (costs start-up time)

        from tilewright.arch.number_formats import find_array_dtype  # noqa: PLC0415  (NumPy)

        kind = find_array_dtype(self.dtype)
        shape, strides = self.launched.shape, self.launched.strides
        flat = np.empty(compute_span(shape, strides), kind)
        self.buffer.copy_to(flat.view(np.uint8), self.stream)
        steps = tuple(stride * kind.itemsize for stride in strides)
        result = _take_region(np.ndarray(shape, kind, flat, strides=steps), self.asked.shape)
        if out is None and as_torch:
            out = to_view(get_torch().empty(self.asked.shape, dtype=to_torch_dtype(self.dtype)))
        if out is not None:
            out.to_array()[...] = result
            return out.tensor
        # Without gaps the result owns all of the memory; else return a packed copy.
        return result if result.size == flat.size else np.ascontiguousarray(result)
