"""Copies of arrays for functions: packed, padded, zeros, and results that are copied to their place or added to.

Host arrays are copied by NumPy. Tensors on a GPU can only be copied if they are torch's: it has the kernels for it, and
its allocator serves temporary tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import TensorError
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.tensors import SIZES, View, compute_span, get_torch, to_torch_dtype, to_view, view_on
from tilewright.ops.execution import Tensor
from tilewright.registry.registry import Registry
from tilewright.runtime.device_objects import get_stream_handle

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

_zeros: dict[tuple[str, tuple[int, ...], str], View] = {}


@contextmanager
def use_torch_stream(views: Iterable[View | None], stream: Any) -> Iterator[None]:
    """Let torch allocate and copy in a stream, if one of the tensors is torch's on a GPU.

    In its own current stream, copies would run before or after the kernels in any order.
    """
    places = (view.form.place for view in views if view is not None and view.library == "torch")
    place = next((place for place in places if place is not None), None)
    if place is None:
        yield
        return
    cuda, handle = get_torch().cuda, get_stream_handle(stream)
    # torch has an object of its own for the default stream, whose handle is 0.
    with cuda.stream(cuda.ExternalStream(handle, device=place) if handle else cuda.default_stream(place)):
        yield


def make_host_array(
    shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None, *, zeros: bool = False
) -> View:
    """A new NumPy array; packed unless strides (in elements, without gaps) are given."""
    import numpy as np  # noqa: PLC0415  (costs start-up time)

    from tilewright.arch.number_formats import find_array_dtype  # noqa: PLC0415  (NumPy)

    made: Any = np.zeros if zeros else np.empty
    if strides is None or 0 in shape:
        return to_view(made(shape, find_array_dtype(dtype)))
    order = sorted(range(len(shape)), key=lambda place: -strides[place])
    stored = made([shape[place] for place in order], find_array_dtype(dtype))
    return to_view(stored.transpose([order.index(place) for place in range(len(shape))]))


def get_device_zeros(device: Device, shape: tuple[int, ...], dtype: str) -> View:
    """A vector of zeros on a device. It is allocated once and kept."""
    key = (device.name, shape, dtype)
    found = _zeros.get(key)
    if found is None or not found.owner.alive:
        buffer = device.allocate(compute_span(shape, (1,)) * SIZES[dtype], "zeros")
        buffer.fill(0)
        found = _zeros[key] = view_on(buffer, shape, dtype)
    return found


def pack(view: View, order: tuple[int, ...] = (), shape: tuple[int, ...] | None = None) -> View:
    """A copy of an array without gaps, broadcast to a shape.

    `order` are its dimensions in the order of the copy, outermost first.
    """
    larger = shape or view.shape
    wanted = order or tuple(range(len(larger)))
    back = tuple(sorted(range(len(wanted)), key=wanted.__getitem__))
    if view.on_host:
        import numpy as np  # noqa: PLC0415  (costs start-up time)

        array = np.broadcast_to(view.to_array(), larger)
        return to_view(np.ascontiguousarray(array.transpose(wanted)).transpose(back))
    if view.library == "torch":
        return to_view(view.owner.expand(larger).permute(wanted).contiguous().permute(back))
    memory = f" and with its dimensions in the order {order}, outermost first" if order else ""
    raise TensorError(
        f"an array of shape {view.shape} has strides {view.strides}, and kernels need shape {larger} without "
        f"gaps{memory}: copy it, or pass a torch tensor, which is copied for you"
    )


def copy_result(source: View, target: View) -> None:
    """Copy a packed result to the array that the caller passed for it."""
    if target.on_host:
        target.to_array()[...] = source.to_array()
    elif target.library == "torch":
        target.owner.copy_(source.owner)
    else:
        raise TensorError(f"out has strides {target.strides}, which no kernel supports: pass an array without gaps")


def check_can_add(result: View, addend: View) -> None:
    """Require arrays in host memory or torch tensors: only these can be added."""
    for view in (result, addend):
        if not view.on_host and view.library != "torch":
            raise TensorError(
                f"{view.form} on a device is not a torch tensor, and only torch tensors and host arrays are added for "
                "you: leave the bias out, and add it with your array library"
            )


def add_to_result(result: View, addend: View) -> None:
    """Add an array of the same shape to a result."""
    if result.on_host:
        array = result.to_array()
        array += addend.to_array()
    else:
        result.owner.add_(_as_torch(addend))


def fill_with_zeros(result: View) -> None:
    """Set all elements of a result to zero."""
    if 0 in result.shape:
        return
    if result.on_host:
        result.to_array()[...] = 0
    elif result.library == "torch":
        result.owner.zero_()
    else:
        raise TensorError(f"the result {result.form} has no terms: pass torch tensors or host arrays")


def run_padded(
    registry: Registry, problem: Any, inputs: Sequence[View], outputs: Sequence[View], stream: Any, device: Device
) -> None:
    """Run a padded problem on tensors of a GPU: copies of the inputs with zeros around, and results that are cut."""
    tensors = get_execution(registry.kernels[0].op).tensors(problem)
    larger = iter([tensor for tensor in tensors if not tensor.output])
    given = [_pad_tensor(view, next(larger)) for view in inputs]
    whole = [_make_tensor(t, view) for t, view in zip((t for t in tensors if t.output), outputs, strict=True)]
    target: Any = to_view(whole[0]) if len(whole) == 1 else tuple(map(to_view, whole))
    registry.run(problem, *map(to_view, given), out=target, stream=stream, device=device)
    for result, view in zip(whole, outputs, strict=True):
        _as_torch(view).copy_(result[tuple(slice(extent) for extent in view.shape)])


def _pad_tensor(view: View, tensor: Tensor) -> Any:
    larger = _make_tensor(tensor, view)
    larger.zero_()
    larger[tuple(slice(extent) for extent in view.shape)].copy_(_as_torch(view))
    return larger


def _make_tensor(tensor: Tensor, like: View) -> Any:
    return get_torch().empty_strided(
        tensor.shape, tensor.strides, dtype=to_torch_dtype(like.dtype), device=_get_owner(like).device
    )


def _as_torch(view: View) -> Any:
    """The torch tensor of a view, or of a part of a tensor."""
    owner = _get_owner(view)
    first = (view.address - owner.data_ptr()) // SIZES[view.dtype]
    return owner.as_strided(view.shape, view.strides, owner.storage_offset() + first)


def _get_owner(view: View) -> Any:
    if not hasattr(view.owner, "as_strided"):
        raise TensorError(
            f"no kernel supports the sizes of {view.form} unpadded, and only torch tensors and host arrays are padded "
            "for you: allocate a padded array"
        )
    return view.owner
