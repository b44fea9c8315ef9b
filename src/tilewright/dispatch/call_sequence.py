"""Several kernels bound to one problem: their calls in order, and the intermediate memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.dispatch.element_types import SIZES, find_array_type
from tilewright.dispatch.launch import BoundKernel, Functions
from tilewright.dispatch.plan import Intermediate, Plan, build_stage, get_execution
from tilewright.dispatch.tensors import compute_span, format_shape
from tilewright.ops.execution import Tensor
from tilewright.ops.kernel import Kernel
from tilewright.runtime.streams import get_stream_handle
from tilewright.select.selection import Selection

if TYPE_CHECKING:
    from tilewright.runtime.buffers import Buffer
    from tilewright.runtime.device import Device


class CallSequence:
    """The calls of a problem's stages. Call it like a single kernel, with the addresses of the whole problem's tensors.

    Tensors are matched by name: a stage's tensor is one of the whole problem, or written by an earlier stage.
    """

    __slots__ = ("_buffers", "_routes", "calls", "device", "intermediates")

    def __init__(
        self, calls: Sequence[BoundKernel], whole: Sequence[Tensor], stages: Sequence[Sequence[Tensor]]
    ) -> None:
        self.calls = tuple(calls)
        self.device = calls[0].device
        self.intermediates = find_intermediates(whole, stages, self.device.arch)
        places = [tensor.name for tensor in whole] + [each.tensor.name for each in self.intermediates]
        self._routes = [[places.index(tensor.name) for tensor in stage] for stage in stages]
        self._buffers: dict[tuple[int, int], list[Buffer]] = {}

    def __call__(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch all in a stream; None is the default one. Returns when the kernels are launched."""
        handle = get_stream_handle(stream)
        every = [*addresses, *(buffer.address for buffer in self.get_buffers(handle))]
        for call, route in zip(self.calls, self._routes, strict=True):
            call([every[place] for place in route], handle)

    def get_buffers(self, stream: int) -> list[Buffer]:
        """Memory for the intermediates. Launches on one stream share it; other threads and streams have their own."""
        key = (threading.get_ident(), stream)
        found = self._buffers.get(key)
        if found is None or not all(buffer.alive for buffer in found):
            found = [self.device.allocate(each.nbytes, each.tensor.name) for each in self.intermediates]
            self._buffers[key] = found
        return found


def count_bytes(tensor: Tensor, arch: Arch) -> int:
    """Bytes of a tensor on a GPU, from its first to its last element."""
    return compute_span(tensor.shape, tensor.strides) * SIZES[find_array_type(tensor.dtype, arch)]


def find_intermediates(
    whole: Sequence[Tensor], stages: Sequence[Sequence[Tensor]], arch: Arch
) -> tuple[Intermediate, ...]:
    """The tensors between stages, in the order in which they are written. An error if stages do not match."""
    own = {tensor.name for tensor in whole}
    inputs = {tensor.name for tensor in whole if not tensor.output}
    known = {tensor.name: tensor for tensor in whole}
    filled = {tensor.name for tensor in whole if not tensor.output or tensor.updated}
    made = []
    for number, stage in enumerate(stages, 1):
        for tensor in stage:
            reads = not tensor.output or tensor.updated
            if reads and tensor.name not in filled:
                raise InvalidValueError(f"stage {number} reads {tensor.name}, which no earlier stage writes")
            if tensor.output and tensor.name in inputs:
                raise InvalidValueError(f"stage {number} writes {tensor.name}, an input of the whole problem")
            _check_same(known.setdefault(tensor.name, tensor), tensor, number, whole=tensor.name in own)
            if not reads and tensor.name not in filled | own:
                made.append(Intermediate(tensor, count_bytes(tensor, arch)))
        filled |= {tensor.name for tensor in stage if tensor.output}
    missing = [tensor.name for tensor in whole if tensor.name not in filled]
    if missing:
        raise InvalidValueError(f"no stage writes {', '.join(missing)}, which the problem has as output")
    return tuple(made)


def _check_same(known: Tensor, tensor: Tensor, number: int, *, whole: bool) -> None:
    """Tensors with the same name must be the same. A later stage may use only the first part of an intermediate.

    The stage that writes it may have to fix its size before its kernel is selected, which decides how much is filled.
    """
    fewer = not whole and tensor.shape[:1] < known.shape[:1] and tensor.shape[1:] == known.shape[1:]
    same = tensor.shape == known.shape or fewer
    if not same or (known.dtype, known.strides) != (tensor.dtype, tensor.strides):
        raise InvalidValueError(
            f"stage {number} has {_describe_tensor(tensor)}, and elsewhere {_describe_tensor(known)}: "
            "tensors of one name must be the same"
        )


def _describe_tensor(tensor: Tensor) -> str:
    return f"{tensor.name} {format_shape(tensor.shape)} of {tensor.dtype} with strides {tensor.strides}"


def bind_selection(
    selection: Selection, device: Device, functions: Callable[[Kernel], Functions]
) -> tuple[Plan, BoundKernel | CallSequence]:
    """The best choices as a plan, and the bound call that launches it; `UnsupportedError` without a choice."""
    execution = get_execution(selection.best.kernel.op)
    stages, calls = [], []
    for part in selection.stages:
        choice = part.best
        launched = part.problem if choice.padded is None else choice.padded
        calls.append(BoundKernel(device, choice.kernel, functions(choice.kernel), execution, launched))
        stages.append(build_stage(choice, part.problem, calls[-1].workspace_bytes))
    if not selection.parts:
        return Plan(selection.problem, device.name, selection.best.why, tuple(stages)), calls[0]
    tensors = [execution.tensors(stage.problem) for stage in stages]
    whole = CallSequence(calls, execution.tensors(selection.problem), tensors)
    why = ", ".join(f"stage {number} {part.best.why}" for number, part in enumerate(selection.parts, 1))
    return Plan(selection.problem, device.name, why, tuple(stages), whole.intermediates), whole
