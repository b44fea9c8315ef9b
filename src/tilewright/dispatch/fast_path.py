"""The fast path of a launch: a function for one problem, its tensor specs and one kernel.

It does the same as `BoundKernel`, with everything precomputed that does not depend on addresses and stream. Its
overhead over the bare call is measured by tools/bench_dispatch.py, and each line below was chosen by that.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright.dispatch.launch import BoundKernel
from tilewright.dispatch.run_tensors import DisjointPair
from tilewright.dispatch.tensors import TensorSpec
from tilewright.runtime.device_objects import get_stream_handle

# Arguments as in `Registry.run`: tensors, out, stream, device, kernel, pad, prepared.
FastPath = Callable[[tuple[Any, ...], Any, Any, Any, Any, Any, Any], Any]
# Larger than any address on x86-64 or arm64, and never the size of a problem.
_MARK = 0x7EED_C0DE_0000_0000
_WORD = 8


class ArgumentTemplate(NamedTuple):
    """An argument struct as bytes, split at the tensor addresses: `pack(head, *addresses, tail)`."""

    pack: Callable[..., bytes]
    head: bytes
    tail: bytes


def make_argument_template(
    prototype: ctypes.Structure, point: Callable[[Any, Sequence[int]], None], count: int
) -> ArgumentTemplate | None:
    """The template of an argument struct, if its addresses are contiguous, in the order of the tensors, and nothing
    else depends on them; else None.

    Detected by setting unique numbers as addresses.
    """
    marks = [_MARK + number for number in range(count)]
    pointed = type(prototype).from_buffer_copy(prototype)
    point(pointed, marks)
    plain, marked, together = bytes(prototype), bytes(pointed), struct.pack(f"={count}Q", *marks)
    at = marked.find(together)
    end = at + count * _WORD
    if at < 0 or marked[:at] != plain[:at] or marked[end:] != plain[end:]:
        return None
    return ArgumentTemplate(struct.Struct(f"={at}s{count}Q{len(plain) - end}s").pack, plain[:at], plain[end:])


class _DeviceCells(threading.local):
    """Each thread's variable for the index of its current device: a reference to it, and a view to read it."""

    def __init__(self) -> None:
        cell = (ctypes.c_int * 1)(-1)
        self.pair = (ctypes.byref(cell), memoryview(cell).cast("B").cast("i"))


_cells = _DeviceCells()


def make_fast_path(
    call: BoundKernel,
    forms: Sequence[TensorSpec],
    pairs: Sequence[DisjointPair],
    options: tuple[Any, Any, Any, Any],
    otherwise: FastPath,
) -> FastPath | None:
    """The fast path for tensors of these specs (the output last) and exactly these options. Other calls go to
    `otherwise`.

    So do tensors whose spans overlap: `otherwise` checks whether they share elements. Returns None for a kernel with a
    workspace, or with other than one or two inputs and one output.
    """
    around = make_argument_template(call.prototype, call.point, len(forms))
    if around is None or call.workspace_bytes or len(forms) not in (2, 3):
        return None
    make = _make_one_input if len(forms) == 2 else _make_two_inputs
    return make(call, around, forms, pairs, options, otherwise)


def _make_one_input(
    call: BoundKernel,
    around: ArgumentTemplate,
    forms: Sequence[TensorSpec],
    pairs: Sequence[DisjointPair],
    options: Any,
    otherwise: FastPath,
) -> FastPath:
    pack, head, tail = around
    form_x, form_out = forms
    ((_, _, least, most),) = pairs
    device_, kernel_, pad_, prepared_ = options
    run, select, hip, index, several, get_device, cells = _gather_parts(call)

    def launch(tensors: Any, out: Any, stream: Any, device: Any, kernel: Any, pad: Any, prepared: Any) -> Any:
        try:
            (x,) = tensors
            known = (
                x.form is form_x
                and out.form is form_out
                and device is device_
                and kernel is kernel_
                and pad is pad_
                and prepared is prepared_
                and not least < (at := out.address) - (at_x := x.address) < most
            )
        except (AttributeError, ValueError):
            known = False
        if not known:
            return otherwise(tensors, out, stream, device, kernel, pad, prepared)
        if stream is not None and type(stream) is not int:
            stream = get_stream_handle(stream)
        place, cell = cells.pair
        if hip.forked or (several and (get_device(place) or cell[0] != index)):
            with select():
                status = run(pack(head, at_x, at, tail), stream)
        else:
            status = run(pack(head, at_x, at, tail), stream)
        if status:
            call.fail(status)
        return out

    return launch


def _make_two_inputs(
    call: BoundKernel,
    around: ArgumentTemplate,
    forms: Sequence[TensorSpec],
    pairs: Sequence[DisjointPair],
    options: Any,
    otherwise: FastPath,
) -> FastPath:
    pack, head, tail = around
    form_a, form_b, form_out = forms
    (_, _, least_a, most_a), (_, _, least_b, most_b) = pairs
    device_, kernel_, pad_, prepared_ = options
    run, select, hip, index, several, get_device, cells = _gather_parts(call)

    def launch(tensors: Any, out: Any, stream: Any, device: Any, kernel: Any, pad: Any, prepared: Any) -> Any:
        try:
            a, b = tensors
            known = (
                a.form is form_a
                and b.form is form_b
                and out.form is form_out
                and device is device_
                and kernel is kernel_
                and pad is pad_
                and prepared is prepared_
                and not least_a < (at := out.address) - (at_a := a.address) < most_a
                and not least_b < at - (at_b := b.address) < most_b
            )
        except (AttributeError, ValueError):
            known = False
        if not known:
            return otherwise(tensors, out, stream, device, kernel, pad, prepared)
        if stream is not None and type(stream) is not int:
            stream = get_stream_handle(stream)
        place, cell = cells.pair
        if hip.forked or (several and (get_device(place) or cell[0] != index)):
            with select():
                status = run(pack(head, at_a, at_b, at, tail), stream)
        else:
            status = run(pack(head, at_a, at_b, at, tail), stream)
        if status:
            call.fail(status)
        return out

    return launch


def _gather_parts(call: BoundKernel) -> tuple[Any, ...]:
    """The objects of a launch, for local variables: they are faster than attributes.

    Launches go to the thread's current device. With only one device, it need not be checked.
    """
    device, hip = call.device, call.device.load_hip()
    return call.functions.run, device.make_current, hip, device.index, hip.count() > 1, hip.make_device_reader(), _cells
