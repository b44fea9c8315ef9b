"""The tensors of a run: checked against the problem, and those in host memory uploaded and downloaded.

An output must not share memory with another tensor, and its elements must not overlap: a kernel reads its inputs while
it writes its outputs, in an undefined order.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.dispatch.launch import BoundKernel, CallSequence, count_bytes
from tilewright.dispatch.plan import Plan, Stage, get_execution
from tilewright.dispatch.tensors import (
    SIZES,
    TensorSpec,
    View,
    compute_span,
    find_array_type,
    format_shape,
    get_torch,
    to_torch_dtype,
    to_view,
    view_on,
)
from tilewright.ops.execution import Execution, Preparation, Tensor

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.device_objects import Buffer

# NumPy's limit of steps to decide whether two strided tensors share an element: some 10 ms.
_MOST_WORK = 100_000


def match_tensors(
    tensors: Sequence[Tensor], inputs: Sequence[View], outputs: Sequence[View | None]
) -> list[View | None]:
    """The views in the order of the problem's tensors; None for an output that must be allocated."""
    wanted = [tensor.name for tensor in tensors if not tensor.output]
    made = [tensor.name for tensor in tensors if tensor.output]
    if len(wanted) != len(inputs):
        raise TensorError(f"the problem has {len(wanted)} inputs ({', '.join(wanted)}), and {len(inputs)} were passed")
    if len(made) != len(outputs):
        raise TensorError(f"the problem has {len(made)} outputs ({', '.join(made)}), and {len(outputs)} were passed")
    given, results = iter(inputs), iter(outputs)
    return [next(results) if tensor.output else next(given) for tensor in tensors]


def is_on_host(tensors: Sequence[Tensor], views: Sequence[View | None]) -> bool:
    """Whether the tensors are in host memory. Raises `TensorError` if only some are."""
    placed = [(tensor.name, view.on_host) for tensor, view in zip(tensors, views, strict=True) if view is not None]
    host = [name for name, is_host in placed if is_host]
    if host and len(host) < len(placed):
        rest = [name for name, is_host in placed if not is_host]
        raise TensorError(
            f"{', '.join(host)} in host memory and {', '.join(rest)} on a device: copy all of them to one side first"
        )
    return bool(host) or not placed


def check_shapes_and_types(tensors: Sequence[Tensor], views: Sequence[View | None], arch: Arch) -> None:
    """Require the problem's shape and, on this GPU, its type. Tensors that are updated in place must be passed."""
    for tensor, view in zip(tensors, views, strict=True):
        if view is None:
            if tensor.updated:
                raise TensorError(f"{tensor.name} is updated in place, so it must be passed as out=…")
            continue
        if view.shape != tensor.shape:
            raise TensorError(f"{tensor.name} is {format_shape(view.shape)}, must be {format_shape(tensor.shape)}")
        if tensor.output and view.read_only:
            raise TensorError(f"{tensor.name} is an output, and the array passed for it is read-only")
        wanted = find_array_type(tensor.dtype, arch)
        if view.dtype != wanted:
            detail = f", which is {wanted} on {arch.name}" if wanted != tensor.dtype else ""
            raise TensorError(f"{tensor.name} is of type {view.dtype}, must be {tensor.dtype}{detail}")


def apply_strides(execution: Execution, problem: Any, tensors: Sequence[Tensor], views: Sequence[View | None]) -> Any:
    """The problem with the strides of the device tensors. Dimensions of one element keep the problem's strides."""
    found = {}
    for tensor, view in zip(tensors, views, strict=True):
        if view is not None:
            triples = zip(tensor.shape, view.strides, tensor.strides, strict=True)
            strides = tuple(own if extent == 1 else real for extent, real, own in triples)
            if strides != tensor.strides:
                found[tensor.name] = strides
    return execution.with_strides(problem, found) if found else problem


class DisjointPair(NamedTuple):
    """An output and another tensor, by their index among the tensors of a problem.

    They can share memory only if `least < address of the output - address of the other < most`.
    """

    output: int
    other: int
    least: int
    most: int


def list_disjoint_pairs(
    tensors: Sequence[Tensor], forms: Sequence[TensorSpec | None], *, inputs: bool = True
) -> tuple[DisjointPair, ...]:
    """Every output with each tensor that must not share its memory; without `inputs`, with other outputs only.

    An output that must be allocated has no spec: it has its own memory.
    """
    pairs = []
    for place, (tensor, form) in enumerate(zip(tensors, forms, strict=True)):
        if not tensor.output or form is None:
            continue
        for other, (against, shape) in enumerate(zip(tensors, forms, strict=True)):
            if shape is None or other == place or (other < place if against.output else not inputs):
                continue
            (low, high), (other_low, other_high) = _compute_extent(form), _compute_extent(shape)
            pairs.append(DisjointPair(place, other, other_low - high, other_high - low))
    return tuple(pairs)


def check_disjoint(pairs: Sequence[DisjointPair], tensors: Sequence[Tensor], views: Sequence[Any]) -> None:
    """Raise `TensorError` if an output shares memory with another tensor."""
    for pair in pairs:
        output, other = views[pair.output], views[pair.other]
        distance = output.address - other.address
        if pair.least < distance < pair.most and _has_shared_elements(output.form, other.form, distance) is not False:
            raise _make_overlap_error(tensors[pair.output], output, tensors[pair.other], other)


def check_outputs(tensors: Sequence[Tensor], views: Sequence[View | None]) -> None:
    """Raise `TensorError` if two elements of an output have the same address, as in a broadcast view."""
    for tensor, view in zip(tensors, views, strict=True):
        if tensor.output and view is not None and _has_repeated_elements(view.form):
            raise TensorError(
                f"{tensor.name} is an output, and its elements share memory with each other: shape {view.shape}, "
                f"strides {view.strides}. Pass a tensor in which every element has its own address."
            )


def _make_overlap_error(tensor: Tensor, output: View, against: Tensor, other: View) -> TensorError:
    extents = [(view.address, *_compute_extent(view.form)) for view in (output, other)]
    start = max(address + low for address, low, _ in extents)
    end = min(address + high for address, _, high in extents)
    sure = _has_shared_elements(output.form, other.form, output.address - other.address)
    return TensorError(
        f"{tensor.name} is an output, and it {'shares' if sure else 'may share'} memory with the "
        f"{'output' if against.output else 'input'} {against.name}: both span the {end - start:,} bytes from "
        f"{start:#x} to {end:#x}. A kernel writes while it reads, so results would be wrong: pass an output with "
        "its own memory."
    )


def _compute_extent(form: TensorSpec) -> tuple[int, int]:
    """The byte range of a tensor relative to its address: the first byte, and the one after the last."""
    reach = [(extent - 1) * stride for extent, stride in zip(form.shape, form.strides, strict=True)]
    size = SIZES[form.dtype]
    return sum(step for step in reach if step < 0) * size, (sum(step for step in reach if step > 0) + 1) * size


@functools.lru_cache(maxsize=256)
def _has_shared_elements(output: TensorSpec, other: TensorSpec, distance: int) -> bool | None:
    """Whether both have a byte in common. `distance` is the output's address minus the other's. None: unknown.

    Interleaved views, such as the parts of one packed tensor, have overlapping spans and no byte in common. NumPy
    decides it from addresses and strides; the memory is not read. Without NumPy the result is unknown.
    """
    try:
        import numpy as np  # noqa: PLC0415  (costs start-up time, and is an optional package)
    except ImportError:
        return None
    # Any address works as long as the distance is right: nothing is read.
    base = 1 << 46
    arrays = [
        np.asarray(_ArrayInterface(form, address)) for form, address in ((output, base + distance), (other, base))
    ]
    shares_memory: Any = np.shares_memory  # its stub knows only 0 and -1 for max_work
    try:
        return bool(shares_memory(*arrays, max_work=_MOST_WORK))
    except np.exceptions.TooHardError:
        return None


class _ArrayInterface:
    """A tensor spec at an address, as NumPy's array interface."""

    def __init__(self, form: TensorSpec, address: int) -> None:
        size = SIZES[form.dtype]
        self.__array_interface__ = {
            "version": 3,
            "shape": form.shape,
            "typestr": f"|V{size}",
            "strides": tuple(stride * size for stride in form.strides),
            "data": (address, True),
        }


def _has_repeated_elements(form: TensorSpec) -> bool:
    """Whether two elements may have the same address: a stride is not larger than the span of inner dimensions."""
    reach = 0
    for stride, extent in sorted(
        (abs(stride), extent) for stride, extent in zip(form.strides, form.shape, strict=True)
    ):
        if extent > 1:
            if stride <= reach:
                return True
            reach += stride * (extent - 1)
    return False


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
            # Not on the default device of a `with torch.device(…)` block.
            out = to_view(get_torch().empty(self.asked.shape, dtype=to_torch_dtype(self.dtype), device="cpu"))
        if out is not None:
            out.to_array()[...] = result
            return out.tensor
        # Without gaps the result owns all of the memory; else return a packed copy.
        return result if result.size == flat.size else np.ascontiguousarray(result)
