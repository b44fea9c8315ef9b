"""The fast path of a launch: a function for one problem, its tensor specs and its kernels.

It does the same as `BoundKernel` and `CallSequence`, with everything precomputed that does not depend on addresses and
stream. The function is generated for the number of tensors and kernels, as `dataclasses` generates `__init__`: loops
over them would take longer than the launch. Its overhead over the bare call is measured by tools/bench_dispatch.py, and
each line of the generated source was chosen by that.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from tilewright.dispatch.launch import BoundKernel, CallSequence
from tilewright.dispatch.run_tensors import DisjointPair
from tilewright.dispatch.tensors import TensorSpec
from tilewright.runtime.device_objects import get_stream_handle

# Arguments as in `Registry.run`: tensors, out, stream, device, kernel, pad, prepared.
FastPath = Callable[[tuple[Any, ...], Any, Any, Any, Any, Any, Any], Any]
# Larger than any address on x86-64 or arm64, and never the size of a problem.
_MARK = 0x7EED_C0DE_0000_0000
_STEP = 1 << 20
_WORD = 8


class ArgumentTemplate(NamedTuple):
    """An argument struct, split at its addresses: `pack` joins `parts`, with an address for each index in them."""

    pack: Callable[..., bytes]
    parts: tuple[bytes | int, ...]


def make_argument_template(make_arguments: Callable[[Sequence[int]], Any], count: int) -> ArgumentTemplate | None:
    """The template of a struct that `make_arguments` fills with this number of addresses, at any offsets.

    None if something else in the struct depends on the addresses. Detected with unique numbers as addresses: the first
    are aligned and ascending, the second unaligned and descending.
    """
    first = [_MARK + _STEP * index for index in range(count)]
    second = [_MARK + _STEP * (count - index) + 1 for index in range(count)]
    marked = bytes(make_arguments(first))
    parts: list[bytes | int] = []
    end = 0
    for offset, index in sorted(_find_marks(marked, first)):
        parts += [marked[end:offset], index]
        end = offset + _WORD
    parts = [part for part in (*parts, marked[end:]) if part != b""]
    layout = "".join("Q" if isinstance(part, int) else f"{len(part)}s" for part in parts)
    template = ArgumentTemplate(struct.Struct(f"={layout}").pack, tuple(parts))
    packed = template.pack(*(second[part] if isinstance(part, int) else part for part in parts))
    return template if packed == bytes(make_arguments(second)) else None


def _find_marks(content: bytes, marks: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The offsets of each mark, with its index."""
    for index, mark in enumerate(marks):
        offset = -1
        while (offset := content.find(struct.pack("=Q", mark), offset + 1)) >= 0:
            yield offset, index


class _DeviceCells(threading.local):
    """Each thread's variable for the index of its current device, and a reference to it."""

    def __init__(self) -> None:
        cell = ctypes.c_int(-1)
        self.pair = (ctypes.byref(cell), cell)


_cells = _DeviceCells()


def make_fast_path(
    call: BoundKernel | CallSequence,
    forms: Sequence[TensorSpec],
    pairs: Sequence[DisjointPair],
    outputs: int,
    options: tuple[Any, Any, Any, Any],
    otherwise: FastPath,
) -> FastPath | None:
    """The fast path for tensors of these specs, of which the last `outputs` are outputs, and exactly these options.
    Other calls go to `otherwise`.

    So do tensors whose spans overlap: `otherwise` checks whether they share elements. Returns None if the arguments of
    a kernel depend on addresses in other ways than by containing them.
    """
    kernels = call.route_addresses(len(forms))
    hip = call.device.load_hip()
    # Global variables of the generated function: they are faster than attributes, and a call does not copy them.
    values = {
        "otherwise": otherwise,
        "get_stream_handle": get_stream_handle,
        "get_memory": call.get_memory,
        "hip": hip,
        "make_current": call.device.make_current,
        "get_device": hip.make_device_reader(),
        "cells": _cells,
        "index": call.device.index,
        **{f"form{index}": form for index, form in enumerate(forms)},
        **dict(zip(("device_", "kernel_", "pad_", "prepared_"), options, strict=True)),
    }
    for number, pair in enumerate(pairs):
        values |= {f"least{number}": pair.least, f"most{number}": pair.most}
    structs = []
    for number, (kernel, route) in enumerate(kernels):
        template = make_argument_template(kernel.make_arguments, len(route))
        if template is None:
            return None
        names = [f"a{route[p]}" if isinstance(p, int) else f"part{number}_{i}" for i, p in enumerate(template.parts)]
        structs.append(f"pack{number}({', '.join(names)})")
        values |= {name: part for name, part in zip(names, template.parts, strict=True) if isinstance(part, bytes)}
        run = kernel.functions.run
        values |= {f"pack{number}": template.pack, f"fail{number}": kernel.fail}
        values |= {f"run{number}": run, f"run_default{number}": run if hip.own_process else _bind_default_stream(run)}
    addresses = max(len(forms), *(1 + index for _, route in kernels for index in route))
    values["last"] = (None,) * (addresses + len(kernels))
    source = _write_source(len(forms), outputs, addresses, pairs, structs, several=hip.count() > 1)
    exec(_compile_source(source), values)
    launch: FastPath = values["launch"]
    return launch


def _bind_default_stream(run: Any) -> Any:
    """A kernel's C function for launches in the default stream, without types: ctypes converts bytes and None faster by
    itself. It would cut off a stream's handle."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(run, ctypes.c_void_p).value or 0)


@functools.lru_cache(maxsize=256)
def _compile_source(source: str) -> CodeType:
    """Problems of one op mostly share their source, and compiling takes longer than the rest of `make_fast_path`."""
    return compile(source, "<fast path of tilewright.dispatch>", "exec")


def _write_source(
    tensors: int, outputs: int, addresses: int, pairs: Sequence[DisjointPair], structs: Sequence[str], *, several: bool
) -> str:
    """The source of a fast path. The tensors are t0, t1 …; the addresses a0, a1 … are theirs, then those of the plan's
    memory. `structs` has the expression of each kernel's argument struct.

    `last` has the addresses and structs of the last launch. The same addresses need no second check of overlaps and no
    second struct. They are compared by identity: that is faster than by value, and keeps no tensor alive. `last` is
    one tuple, so a thread never uses a part of another thread's launch.

    Launches go to the thread's current device. With one device in the process it need not be checked.
    """
    views = [f"t{index}" for index in range(tensors)]
    given, results = views[:-outputs], views[-outputs:]
    now, before = ([f"{letter}{index}" for index in range(addresses)] for letter in "ab")
    args = [f"args{number}" for number in range(len(structs))]
    forms = " and ".join(f"t{index}.form is form{index}" for index in range(tensors))
    same = " and ".join(f"{new} is {old}" for new, old in zip(now, before, strict=True))
    overlaps = " or ".join(f"least{n} < a{pair.output} - a{pair.other} < most{n}" for n, pair in enumerate(pairs))
    runs = [
        f"if status := (run_default{n} if stream is None else run{n})({each}, stream): fail{n}(status)"
        for n, each in enumerate(args)
    ]
    leave = "return otherwise(tensors, out, stream, device, kernel, pad, prepared)"
    lines = [
        "def launch(tensors, out, stream, device, kernel, pad, prepared):",
        " global last",
        " try:",
        f"  {_join(given)} = tensors",
        # An empty tuple cannot be unpacked, so that any other object goes to `otherwise`.
        f"  {_join(results)} = out if type(out) is tuple else ()" if outputs > 1 else f"  {results[0]} = out",
        f"  known = {forms} and device is device_ and kernel is kernel_ and pad is pad_ and prepared is prepared_",
        " except (AttributeError, ValueError):",
        "  known = False",
        f" if not known: {leave}",
        " if stream is not None and type(stream) is not int: stream = get_stream_handle(stream)",
        *(f" a{index} = t{index}.address" for index in range(tensors)),
        f" {_join(now[tensors:])} = get_memory(stream or 0)" if addresses > tensors else "",
        f" {_join([*before, *args])} = last",
        f" if not ({same}):",
        f"  if {overlaps}: {leave}" if overlaps else "",
        *(f"  {each} = {made}" for each, made in zip(args, structs, strict=True)),
        f"  last = {_join([*now, *args])}",
        " cell, current = cells.pair" if several else "",
        " if hip.forked or get_device(cell) or current.value != index:" if several else " if hip.forked:",
        "  with make_current():",
        *(f"   {line}" for line in runs),
        " else:",
        *(f"  {line}" for line in runs),
        " return out",
    ]
    return "\n".join(lines)


def _join(names: Sequence[str]) -> str:
    """The source of a tuple of names."""
    return f"({', '.join(names)}{',' if names else ''})"
