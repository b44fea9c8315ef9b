"""Calls of built kernels: C functions, arguments, workspace and status; one call, or several in order."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, InvalidValueError, UnsupportedError
from tilewright.dispatch.plan import Intermediate, Plan, build_stage, get_execution
from tilewright.dispatch.tensors import SIZES, compute_span, find_array_type, format_shape
from tilewright.ops.execution import Execution, Tensor
from tilewright.ops.kernel import Kernel
from tilewright.runtime.device_objects import get_stream_handle
from tilewright.select.selection import Selection

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.device_objects import Buffer

# enum tw_status of every op's header.
OK, BAD_ARGS, UNSUPPORTED, WORKSPACE, HIP_ERROR = range(5)


class Functions(NamedTuple):
    """The C functions of one kernel, with their types. Structs are passed by reference or as bytes, never as addresses:
    the library may be in another process."""

    run: Callable[[Any, int | None], int]
    workspace_size: Callable[[Any, Any], int]
    message: Callable[[], bytes]


def bind_functions(device: Device, library: Path, kernel: Kernel) -> Functions:
    """Load a kernel's library for a device, and bind its functions."""
    loaded = device.library(library)
    types: tuple[tuple[str, Any, list[Any]], ...] = (
        ("run", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
        ("workspace_size", ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]),
        ("message", ctypes.c_char_p, []),
    )
    found = []
    for name, result, arguments in types:
        function = loaded[f"{kernel.symbol}_{name}"]
        function.restype = result
        function.argtypes = arguments
        found.append(function)
    return Functions(*found)


class BoundKernel:
    """A kernel bound to a problem on a device: call it with addresses and a stream.

    Each launch has its own arguments, so any number of threads may call it at once.
    """

    __slots__ = ("_workspaces", "device", "functions", "kernel", "point", "prototype", "workspace_bytes")

    def __init__(
        self, device: Device, kernel: Kernel, functions: Functions, execution: Execution, problem: Any
    ) -> None:
        self.device = device
        self.kernel = kernel
        self.functions = functions
        self.point = execution.point(problem)
        self.prototype = execution.arguments(problem)
        self._workspaces: dict[tuple[int, int], Buffer] = {}
        self.workspace_bytes = self._read_workspace_size()

    def __call__(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch in a stream; None is the default one. Returns when the kernel is launched, not when it is finished."""
        handle = get_stream_handle(stream)
        args = self.make_arguments([*addresses, *self.get_memory(handle)])
        with self.device.make_current():
            status = self.functions.run(ctypes.byref(args), handle)
        if status:
            self.fail(status)

    def prepare_launch(self, addresses: Sequence[int], stream: Any) -> Callable[[], None]:
        """A function that repeats the same launch with minimal host work, for measuring.

        Only for this thread, and only while the device is current.
        """
        handle = get_stream_handle(stream)
        args = self.make_arguments([*addresses, *self.get_memory(handle)])
        run, place = self.functions.run, ctypes.byref(args)

        def launch() -> None:
            if status := run(place, handle):
                self.fail(status)

        return launch

    def make_arguments(self, addresses: Sequence[int]) -> Any:
        """The argument struct with the addresses of the tensors, followed by those of `get_memory`."""
        args: Any = type(self.prototype).from_buffer_copy(self.prototype)
        if self.workspace_bytes:
            *addresses, args.workspace = addresses
            args.workspace_size = self.workspace_bytes
        self.point(args, addresses)
        return args

    def get_memory(self, stream: int) -> list[int]:
        """The address of the workspace for a launch in a stream, if the kernel needs one.

        It is kept with the call. Launches of one thread in one stream run one after another, so they share it. Other
        streams run at the same time, and a kernel may take several launches, which those of another thread could
        come between: both have their own.
        """
        if not self.workspace_bytes:
            return []
        key = (threading.get_ident(), stream)
        workspace = self._workspaces.get(key)
        if workspace is None or not workspace.alive:
            label = f"workspace of {self.kernel.symbol}"
            workspace = self._workspaces[key] = self.device.allocate(self.workspace_bytes, label)
        return [workspace.address]

    def route_addresses(self, tensors: int) -> tuple[RoutedKernel, ...]:
        """The kernel with all addresses: those of this number of tensors, then those of `get_memory`."""
        return (RoutedKernel(self, tuple(range(tensors + bool(self.workspace_bytes)))),)

    def fail(self, status: int) -> NoReturn:
        """Raise the error for a status, with the library's message for this thread."""
        said = (self.functions.message() or b"").decode(errors="replace") or "it returned no message"
        message = f"{self.kernel.slug} on {self.device.name}: {said}"
        if status == BAD_ARGS:
            raise InvalidValueError(message)
        if status == UNSUPPORTED:
            raise UnsupportedError(message)
        if status == HIP_ERROR:
            self.device.raise_pending(message)
        what = "status 3, the workspace" if status == WORKSPACE else f"status {status}, which tw_status does not define"
        raise DeviceError(f"{message} ({what})")

    def _read_workspace_size(self) -> int:
        bytes_ = ctypes.c_uint64()
        status = self.functions.workspace_size(ctypes.byref(self.prototype), ctypes.byref(bytes_))
        if status:
            self.fail(status)
        if bytes_.value and not hasattr(self.prototype, "workspace"):
            raise InvalidValueError(
                f"{self.kernel.slug} needs {bytes_.value:,} bytes of workspace, and the arguments of {self.kernel.op} "
                "have no fields `workspace` and `workspace_size`"
            )
        return bytes_.value


class RoutedKernel(NamedTuple):
    """A kernel of a call, and the indices of its addresses among those of the call."""

    kernel: BoundKernel
    route: tuple[int, ...]


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

    def get_memory(self, stream: int) -> list[int]:
        """The addresses of the intermediates for a launch in a stream, then those of the kernels' workspaces."""
        workspaces = (address for call in self.calls for address in call.get_memory(stream))
        return [*(buffer.address for buffer in self.get_buffers(stream)), *workspaces]

    def route_addresses(self, tensors: int) -> tuple[RoutedKernel, ...]:
        """The kernels in order, with indices into the addresses of this number of tensors and of `get_memory`."""
        workspaces = itertools.count(tensors + len(self.intermediates))
        return tuple(
            RoutedKernel(call, (*route, *itertools.islice(workspaces, bool(call.workspace_bytes))))
            for call, route in zip(self.calls, self._routes, strict=True)
        )


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
